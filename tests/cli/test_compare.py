"""``maskreg compare``: tables, documents, answers, and what ``show`` and ``list`` tell of recorded overlaps."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from maskreg.artifact.layout import artifact_prefix
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.settings import Settings
from maskreg.words import times
from tests.checkpoints import make_checkpoint, moved
from tests.cli.conftest import Run, tensors


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


def test_the_mask_that_is_not_here_is_named(run: Run, masks: tuple[str, str, str], tmp_path: Path) -> None:
    run("remote", "add", "lab", tmp_path / "lab")
    place = Path(os.environ["MASKREG_HOME"]) / "artifacts" / "sha256" / run("show", "one", "--json").json["digest"][7:]
    shutil.rmtree(place / "data.zarr" / "mask" / "c")
    (place / "data.zarr" / "mask" / "zarr.json").unlink()
    assert "next: maskreg pull one --only mask" in run("compare", "one", "two", status=66).err


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
