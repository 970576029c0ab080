"""``maskreg compare``: tables, documents, answers, and what ``show`` and ``list`` tell of recorded overlaps."""

from __future__ import annotations

import os
import re
import shutil
from itertools import combinations
from pathlib import Path

from maskreg.artifact.layout import artifact_prefix
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.settings import Settings
from maskreg.words import interval, percent, times
from tests.checkpoints import make_checkpoint, moved
from tests.cli.conftest import Run, tensors


def in_order(told: str, *words: str) -> None:
    places = [told.index(word) for word in words]
    assert places == sorted(places)


def test_the_answer_comes_first_then_the_figures_that_it_rests_on(run: Run, masks: tuple[str, str, str]) -> None:
    done = run("compare", *masks[:2])
    assert done.out.startswith(("Yes: ", "No", "Cannot tell"))
    in_order(
        done.out,
        "the overlap of A and B",
        "A  one",
        "density",
        "in both  ",
        "null  ",
        "observed/expected",
        "the same by row",
    )
    assert len(done.out.splitlines()) < 18
    assert "random per tensor" not in done.out
    assert done.err.endswith("more: add --verbose or --by role|layer|module|tensor\n")
    document = run("compare", *masks[:2], "--json").json["pairs"][0]
    for null, label in (
        ("exponent-matched", "exponent-matched random"),
        ("row-column-matched", "the same by row and column"),
    ):
        over = document["whole"]["nulls"][null]
        (line,) = (line for line in done.out.splitlines() if line.startswith(label))
        figures = (f"{round(over['expected']):,}", times(over["ratio"]), percent(over["headroom"]))
        assert re.split("  +", line)[1:] == [*figures, interval(over["headroom_interval"])]


def test_what_is_known_of_the_start_is_asked_of_the_cards(run: Run, masks: tuple[str, str, str]) -> None:
    def told(*more: str) -> str:
        start = run("compare", *masks[:2], *more, "--json").json["pairs"][0]["verdict"]["start"]
        assert isinstance(start, str)
        return start

    assert (told(), told("--start", "yes")) == ("unknown", "yes")
    run("baseline", "one", "--kind", "subset", "--density", "0.1", "--name", "part")
    run("baseline", "one", "--kind", "random-global", "--seed", "1", "--name", "drawn")
    for name, start in (("part", "unknown"), ("drawn", "yes")):
        assert run("compare", "two", name, "--json").json["pairs"][0]["verdict"]["start"] == start
    run("annotate", masks[0], "--meta", "start=yes")
    assert (told(), told("--start", "unknown")) == ("yes", "unknown")


def test_the_smallest_effect_that_matters_is_a_share(run: Run, masks: tuple[str, str, str]) -> None:
    for text in ("5%", "0.05"):
        document = run("compare", *masks[:2], "--smallest-effect", text, "--json").json
        assert document["pairs"][0]["verdict"]["smallest"] == 0.05
    for text in ("-1%", "100%", "nan", "x"):
        run("compare", *masks[:2], f"--smallest-effect={text}", status=2)


def test_everything_else_is_one_option_away(run: Run, masks: tuple[str, str, str]) -> None:
    done = run("compare", *masks[:2], "--verbose")
    in_order(
        done.out,
        "the overlap of A and B",
        "coverage",
        "lift ",
        "uniform random  ",
        "random per tensor",
        "rounding alone in both",
        "odds ratio",
        "by tensor and exponent",
        "more means: under every null that decides",
    )
    assert "more: add" not in done.err


def test_a_line_for_every_group(run: Run, masks: tuple[str, str, str]) -> None:
    for by, names in (("role", ["ffn", "attention"]), ("layer", ["0", "1"]), ("tensor", list(tensors()))):
        lines = run("compare", *masks[:2], "--by", by).out.splitlines()
        assert all(any(line.startswith(name + " ") for line in lines) for name in names)
    lines = run("compare", *masks[:2], "--by", "module").out.splitlines()
    (line,) = (line for line in lines if line.startswith("mlp.up_proj "))
    assert "2,048" in line
    modules = run("compare", *masks[:2], "--json").json["pairs"][0]["modules"]
    assert set(modules) == {"model.embed_tokens", "lm_head", "self_attn.q_proj", "mlp.up_proj"}
    assert modules["mlp.up_proj"]["coordinates"] == 2 * 64 * 16


def test_many_masks(run: Run, masks: tuple[str, str, str]) -> None:
    told = run("compare", *masks, "--stripes", "--by", "role", "--verbose").out
    for words in ("A B ", "A C ", "B C ", "3 masks", "role, B and C", "C model.layers.0.mlp.up_proj.weight"):
        assert words in told
    document = run("compare", *masks, "--stripes", "--json").json
    assert [pair["digests"] for pair in document["pairs"]] == [
        [document["masks"][a]["digest"], document["masks"][b]["digest"]] for a, b in ((0, 1), (0, 2), (1, 2))
    ]
    assert [row["masks"] for row in document["consensus"]] == [0, 1, 2, 3]
    assert len(document["stripes"]) == 3


def test_the_matrix_of_many_masks(run: Run, masks: tuple[str, str, str]) -> None:
    run("baseline", "one", "--kind", "subset", "--density", "0.1", "--name", "part")
    run("annotate", "part", "--meta", "start=yes")
    done = run("compare", *masks, "part")
    in_order(
        done.out,
        "More than rounding and chance give? Of 6 pairs, ",
        "Holm",
        "A  one",
        "Headroom is over",
        "headroom  ",
        "pair  answer",
    )
    document = run("compare", *masks, "part", "--json").json
    square, letters = document["matrix"]["headrooms"], "ABCD"
    assert "Training started at the source: unknown" in " ".join(done.out.split())
    for at, (pair, answer) in enumerate(zip(combinations(range(4), 2), document["matrix"]["answers"], strict=True)):
        a, b = pair
        (line,) = (line for line in done.out.splitlines() if line.startswith(f"{letters[a]} {letters[b]}  "))
        assert line.endswith(f"{percent(answer['headroom'])}  {interval(answer['headroom_interval'])}".split("  ")[1])
        assert (answer["masks"], answer["alone"]) == ([a, b], document["pairs"][at]["verdict"]["outcome"])
        assert square[a][b] == square[b][a] == answer["headroom"]
        assert answer["headroom"] == document["pairs"][at]["whole"]["nulls"][document["matrix"]["null"]]["headroom"]
    assert "A D   related (part was made from one (subset))" in done.out
    assert [square[mask][mask] for mask in range(4)] == [None] * 4
    assert document["matrix"]["tested"] == 5


def test_the_document_is_exact(run: Run, masks: tuple[str, str, str]) -> None:
    document = run("compare", *masks[:2], "--json").json
    (pair,) = document["pairs"]
    whole = pair["whole"]
    assert whole["lift"] == whole["nnz_both"] * whole["coordinates"] / (whole["nnz_a"] * whole["nnz_b"])
    assert set(pair["tensors"]) == set(tensors())
    assert (document["consensus"], document["stripes"], document["recorded"]) == (None, [], [])
    assert whole["nulls"]["exponent-matched"]["expected"] > 0


def test_without_the_source_less_is_told_and_how_to_get_it(
    run: Run, masks: tuple[str, str, str], tmp_path: Path
) -> None:
    kept = (tmp_path / "source").rename(tmp_path / "kept")
    told = run("compare", *masks[:2], "--verbose").out
    assert "note: figures by exponent and the rounding null are left out" in told
    assert "--source" in told
    assert "exponent-matched random" not in told
    assert "exponent-matched random" in run("compare", *masks[:2], "--source", kept).out
    wrong = run("compare", *masks[:2], "--source", tmp_path / "one", status=65)
    assert "model.embed_tokens.weight" in wrong.err
    run("compare", *masks[:2], "--source", tmp_path / "nothing", status=66)
    run("compare", *masks[:2], "--download", status=66)


def test_the_exit_code_is_the_answer(run: Run, masks: tuple[str, str, str]) -> None:
    run("compare", *masks[:2], status=0)
    run("compare", *masks[:2], "--exit-code", status=1)
    # A mask beside itself is no evidence.
    run("compare", "one", "one", "--exit-code", status=1)
    assert run("compare", "one", "one").out.startswith("No answer: one and one are the same artifact")


def test_definitions_are_one_option_away(run: Run) -> None:
    assert run("compare", "--explain", "lift").out.startswith("lift: ")
    assert run("compare", "--explain", "mh", "--json").json["figure"] == "mantel-haenszel"
    assert "--explain headroom" in run("compare", "--explain", "hedroom", status=2).err


def test_every_word_of_every_table_is_explained(run: Run, masks: tuple[str, str, str]) -> None:
    options = ("--stripes", "--by", "tensor", "--verbose")
    pair, many = (run("compare", *names, *options).out for names in (masks[:2], masks))
    sections = pair.split("\n\n")
    labels = [line[:19] for line in sections[2].splitlines()]
    labels += [line[:26] for line in (*sections[4].splitlines(), *sections[6].splitlines())]
    for beside in (sections[3].splitlines(), sections[5].splitlines()):
        labels += [re.split("  +", line)[0] for line in beside] + re.split("  +", beside[0])[1:]
    stripes = next(line for line in pair.splitlines() if line.startswith("stripes"))
    consensus = next(line for line in many.splitlines() if line.startswith("in exactly"))
    labels += [*re.split("  +", stripes), *re.split("  +", consensus), "coordinates", "tensors"]
    labels += ["answer", "relation", "related"]
    for told, begins in ((pair, "tensor "), (many, "pair  density")):
        lines = told.splitlines()
        at = next(number for number, line in enumerate(lines) if line.startswith(begins))
        head, under = re.split("  +", lines[at]), lines[at + 1].split()
        assert under == ["tensor", "exponent", "rounding", "exponent", "exponent"]
        labels += head + [f"{figure} {what}" for figure, what in zip(head[-5:], under, strict=True)]
    assert "odds ratio exponent" in labels
    words = {word.rstrip() for word in labels}
    assert {"  by tensor and exponent", "observed/expected", "expected", "in both", "deviations", "full rows"} <= words
    for label in labels:
        assert run("compare", "--explain", label.strip()).out.count(": ") >= 1
    assert "exponent-matched: Null" in run("compare", "--explain", "headroom exponent").out


def test_without_the_source_columns_are_beside_tensors(run: Run, masks: tuple[str, str, str], tmp_path: Path) -> None:
    (tmp_path / "source").rename(tmp_path / "kept")
    for options, nulls in (((), "tensor tensor"), (("--verbose",), "tensor exponent rounding tensor tensor")):
        lines = run("compare", *masks[:2], "--by", "role", *options).out.splitlines()
        at = next(number for number, line in enumerate(lines) if line.startswith("role "))
        assert lines[at + 1].split() == nulls.split()


def test_sentences_name_the_masks(run: Run, masks: tuple[str, str, str]) -> None:
    document = run("compare", *masks, "--json").json
    assert [pair["names"] for pair in document["pairs"]] == [list(two) for two in combinations(masks, 2)]
    for pair in document["pairs"]:
        assert f"the overlap of {' and '.join(pair['names'])} is" in pair["verdict"]["sentence"]
    assert set(document["pairs"][0]["whole"]["mantel_haenszel"]) == {
        "by-tensor",
        "by-exponent",
        "by-tensor-and-exponent",
    }


def test_what_makes_masks_alike_is_said(run: Run, masks: tuple[str, str, str]) -> None:
    run("baseline", "one", "--kind", "subset", "--density", "0.1", "--name", "part")
    run("combine", "one", "two", "--how", "or", "--name", "any")
    run("combine", "one", "one", "--how", "and", "--name", "copy")
    assert "note: one and one are the same artifact\n" in run("compare", "one", "one").out
    assert "note: part was made from one (subset)\n" in run("compare", "one", "part").out
    assert "note: any was made from two (or)\n" in run("compare", "any", "two").out
    told = run("compare", "one", "copy", "rl:rlvr-reference", "--json").json["pairs"]
    assert told[0]["notes"] == ["one and copy hold the same coordinates", "copy was made from one (and)"]
    assert told[1]["notes"] == told[2]["notes"] == []


def test_what_was_made_from_a_child_is_related(run: Run, masks: tuple[str, str, str]) -> None:
    run("baseline", "one", "--kind", "subset", "--density", "0.1", "--name", "part")
    run("combine", "part", "two", "--how", "and", "--name", "small")
    run("baseline", "one", "--kind", "subset", "--density", "0.05", "--name", "other")
    (pair,) = run("compare", "one", "small", "--json").json["pairs"]
    assert pair["verdict"]["outcome"] == "related"
    assert pair["notes"] == ["small was made from one (subset, then and)"]
    (cousins,) = run("compare", "small", "other", "--json").json["pairs"]
    assert cousins["verdict"]["outcome"] != "related"
    assert f"small and other were both made from {pair['digests'][0][:19]}" in cousins["notes"]
    with Registry.local(Settings.load()) as home:
        part = home.resolve(Ref.parse("part")).digest
        home.store.delete([info.key for info in home.store.list(artifact_prefix(part))])
    (pair,) = run("compare", "one", "small", "--json").json["pairs"]
    assert pair["verdict"]["outcome"] != "related"
    gone = f"small was made from {part.short}, which is not here, so what that was made from is not known"
    assert gone in pair["notes"]


def test_the_source_may_be_required(run: Run, masks: tuple[str, str, str], tmp_path: Path) -> None:
    words = ("compare", *masks[:2], "--by", "role", "--exit-code", "--require-source")
    run(*words, status=1)
    kept = (tmp_path / "source").rename(tmp_path / "kept")
    done = run(*words, status=66)
    assert done.out == ""
    assert f"tried: gone: {tmp_path / 'source'}" in done.err
    assert "next: maskreg compare one two --by role --exit-code --require-source --source PATH" in done.err
    run(*words, "--source", kept, status=1)
    other = {name: moved(tensor, 0.3, 77) for name, tensor in tensors().items()}
    pair = make_checkpoint(tmp_path / "other", other), make_checkpoint(tmp_path / "after", tensors())
    run("extract", *pair, "--name", "foreign", "--mask-only")
    apart = ("compare", "one", "foreign", "--allow-different", "--source", kept)
    assert "the masks have no common source" in run(*apart).out
    assert "the masks have no common source" in run(*apart, "--require-source", status=66).err


def test_usage(run: Run, masks: tuple[str, str, str]) -> None:
    run("compare", status=2)
    run("compare", "one", status=2)
    run("compare", "one", "nobody", status=66)
    run("compare", "one", "two", "--by", "color", status=2)


def test_the_mask_that_is_not_here_is_named(run: Run, masks: tuple[str, str, str], tmp_path: Path) -> None:
    run("remote", "add", "lab", tmp_path / "lab")
    place = Path(os.environ["MASKREG_HOME"]) / "artifacts" / "sha256" / run("show", "one", "--json").json["digest"][7:]
    shutil.rmtree(place / "data.zarr" / "mask" / "c")
    (place / "data.zarr" / "mask" / "zarr.json").unlink()
    assert "next: maskreg pull one --only mask" in run("compare", "one", "two", status=66).err


def test_nothing_is_recorded_of_an_empty_mask(run: Run, masks: tuple[str, str, str], tmp_path: Path) -> None:
    run("extract", tmp_path / "source", tmp_path / "source", "--name", "still", "--mask-only")
    done = run("compare", "still", "one", "--record", "--json")
    assert done.json["recorded"] == []
    assert "note: nothing is recorded of still and one" in done.err


def test_masks_that_differ_are_refused_unless_allowed(run: Run, masks: tuple[str, str, str], tmp_path: Path) -> None:
    run("extract", tmp_path / "source", tmp_path / "two", "--name", "coarse", "--rule", "abs:1e-5", "--mask-only")
    told = run("compare", "one", "coarse", status=65).err
    assert "different rules" in told
    assert "--allow-different" in told
    assert "note: the masks follow different rules" in run("compare", "one", "coarse", "--allow-different").out


def test_recorded_overlaps_are_shown_and_listed(run: Run, masks: tuple[str, str, str]) -> None:
    assert run("show", "one", "--json").json["rlvr_overlap"] is None
    assert "RLVR overlap" not in run("show", "one").out
    kept = run("compare", "one", masks[2], "--record", "--json").json
    assert [row["metric"] for row in kept["recorded"]] == ["overlap", "rlvr_overlap"]
    lift, reference = kept["pairs"][0]["whole"]["lift"], kept["masks"][1]["digest"]
    assert "recorded seed_overlap" in run("compare", "one", "two", "--record").err
    shown = run("show", "one", "--json").json
    assert (shown["rlvr_overlap"]["lift"], shown["rlvr_overlap"]["against"]) == (lift, reference)
    lines = {line.split("  ")[0].strip(): line for line in run("show", "one").out.splitlines()}
    told = run("show", "one").out
    assert f"RLVR overlap lift {times(lift)}, with {reference}" in told
    assert "another seed of the same recipe" in lines["ceiling"]
    assert run("list", "--rlvr-overlap", "0..", "-q").out == "one\n"
    header, *rows = (line.split("\t") for line in run("list").out.splitlines())
    column = header.index("rlvr_overlap")
    assert {row[0]: row[column] for row in rows}["one"] == times(lift)
    assert run("list", "one", "--json").json["names"][0]["rlvr_against"] == reference
