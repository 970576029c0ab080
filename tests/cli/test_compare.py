"""``maskreg compare``: tables, documents, answers, and what ``show`` and ``list`` tell of recorded overlaps."""

from __future__ import annotations

from pathlib import Path

from maskreg.artifact.layout import artifact_prefix
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.settings import Settings
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


def test_what_makes_masks_alike_is_said(run: Run, masks: tuple[str, str, str]) -> None:
    run("baseline", "one", "--kind", "subset", "--density", "0.1", "--name", "part")
    run("combine", "part", "one", "--how", "or", "--name", "copy")
    told = run("compare", "one", "copy", "rl:rlvr-reference", "--json").json["pairs"]
    assert [note.partition(" ")[0] for note in told[0]["notes"]] == ["one", "copy"]
    assert told[1]["notes"] == told[2]["notes"] == []
    run("combine", "part", "two", "--how", "and", "--name", "small")
    run("baseline", "one", "--kind", "subset", "--density", "0.05", "--name", "other")
    (pair,) = run("compare", "one", "small", "--json").json["pairs"]
    assert pair["verdict"]["outcome"] == "related" and "(subset, then and)" in pair["notes"][0]
    (cousins,) = run("compare", "small", "other", "--json").json["pairs"]
    assert cousins["verdict"]["outcome"] != "related"
    with Registry.local(Settings.load()) as home:
        part = home.resolve(Ref.parse("part")).digest
        home.store.delete([info.key for info in home.store.list(artifact_prefix(part))])
    (pair,) = run("compare", "one", "small", "--json").json["pairs"]
    assert pair["verdict"]["outcome"] != "related"
    assert any(part.short in note for note in pair["notes"])


def test_without_the_source_less_is_told_unless_it_is_required(
    run: Run, masks: tuple[str, str, str], tmp_path: Path
) -> None:
    words = ("compare", *masks[:2], "--exit-code", "--require-source")
    run(*words, status=1)
    kept = (tmp_path / "source").rename(tmp_path / "kept")
    assert "exponent-matched random" not in run("compare", *masks[:2], "--verbose").out
    done = run(*words, status=66)
    assert done.out == ""
    assert "next: maskreg compare one two --exit-code --require-source --source CKPT" in done.err
    assert "exponent-matched random" in run("compare", *masks[:2], "--source", kept).out
    # From now on it is known where the source is.
    run(*words, status=1)
    other = {name: moved(tensor, 0.3, 77) for name, tensor in tensors().items()}
    pair = make_checkpoint(tmp_path / "other", other), make_checkpoint(tmp_path / "after", tensors())
    run("extract", *pair, "--name", "foreign", "--mask-only")
    apart = ("compare", "one", "foreign", "--allow-different", "--source", kept)
    run(*apart)
    run(*apart, "--require-source", status=66)
