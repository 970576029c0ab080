"""A sweep: an artifact for each checkpoint of a run, and nothing done twice."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import maskreg
from maskreg.errors import NoSpaceError, NotFoundError, UsageError
from maskreg.workspace.verbs.sweep import Sweep
from tests.checkpoints import make_checkpoint, moved
from tests.workspace.conftest import SOURCE, Lab

STEPS = (2, 10, 100)
Sweeping = Callable[..., Sweep]


@pytest.fixture
def out(lab: Lab) -> Path:
    """The checkpoints of a run; each moves more than the one before."""
    tensors = SOURCE
    for number in STEPS:
        tensors = {name: moved(tensor, 0.1, number + seed) for seed, (name, tensor) in enumerate(tensors.items())}
        make_checkpoint(lab.folder / "out" / f"step-{number}", tensors)
    return lab.folder / "out"


@pytest.fixture
def sweep(lab: Lab, ada: maskreg.Workspace, out: Path) -> Sweeping:
    """A sweep of the run by ada, from the source unless told otherwise."""

    def swept(name: str = "run", **how: Any) -> Sweep:
        given = {"source": lab.source, "workspace": ada, **how}
        return maskreg.sweep(f"{out}/step-*", name, **given)

    return swept


def states(result: Sweep) -> list[str]:
    return [row.status for row in result.checkpoints]


def test_each_checkpoint_is_a_tag_and_equals_its_own_extraction(
    lab: Lab, ada: maskreg.Workspace, sweep: Sweeping
) -> None:
    result = sweep("team/run", method="opd")
    assert [str(row.ref) for row in result.checkpoints] == [f"team/run:step-{number}" for number in STEPS]
    for row in result.checkpoints:
        alone = maskreg.extract(lab.source, row.checkpoint, workspace=ada)
        assert (row.status, row.digest, row.density, row.size) == ("new", alone.digest, alone.density, alone.size)
        assert ada.find(row.ref).card.method == "opd"


def test_what_was_extracted_is_not_read_again(
    ada: maskreg.Workspace, sweep: Sweeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sweep()
    monkeypatch.delattr("maskreg.workspace.verbs.sweep.extract")
    again = sweep(family="toy")
    assert states(again) == ["kept"] * 3
    assert [row.digest for row in again.checkpoints] == [row.digest for row in first.checkpoints]
    # What is said now holds, and reads no checkpoint either.
    assert ada.find("run:step-10").card.family == "toy"


def test_names_that_are_no_text_are_known_again(lab: Lab, ada: maskreg.Workspace) -> None:
    folder = lab.folder / os.fsdecode(b"r\xffn")
    make_checkpoint(folder / "step-1", {name: moved(tensor, 0.1, 3) for name, tensor in SOURCE.items()})
    for status in ("new", "kept"):
        assert states(maskreg.sweep(str(folder / "step-*"), "run", source=lab.source, workspace=ada)) == [status]


def test_a_run_that_grew_or_changed_is_extracted_where_it_did(
    ada: maskreg.Workspace, out: Path, sweep: Sweeping
) -> None:
    sweep()
    make_checkpoint(out / "step-200", {name: moved(tensor, 0.5, 7) for name, tensor in SOURCE.items()})
    make_checkpoint(out / "step-10", {name: moved(tensor, 0.6, 8) for name, tensor in SOURCE.items()})
    assert states(sweep(dry_run=True)) == ["kept", "waiting", "kept", "waiting"]
    assert states(sweep()) == ["kept", "new", "kept", "new"]
    # Other options are other artifacts; a tag or an artifact that is gone is made again.
    assert states(sweep("masks", mask_only=True)) == ["new"] * 4
    maskreg.remove("run:step-100", workspace=ada)
    assert states(sweep()) == ["kept", "kept", "new", "kept"]


def test_a_chain_of_steps_gives_the_last_checkpoint(
    lab: Lab, ada: maskreg.Workspace, out: Path, sweep: Sweeping
) -> None:
    result = sweep(onto="previous")
    assert [Path(row.onto).name for row in result.checkpoints] == ["source", "step-2", "step-10"]
    path = lab.source
    for row in result.checkpoints:
        maskreg.apply(row.ref, path, (path := lab.folder / f"made-{row.ref.tag}"), workspace=ada)
    assert (path / "model.safetensors").read_bytes() == (out / "step-100/model.safetensors").read_bytes()


def test_the_source_may_be_one_of_the_checkpoints(out: Path, sweep: Sweeping) -> None:
    for how in ({"source": None, "onto": "previous"}, {"source": out / "step-2"}):
        assert [row.ref.tag for row in sweep(**how).checkpoints] == ["step-10", "step-100"]


def test_a_damaged_checkpoint_does_not_end_the_others(out: Path, sweep: Sweeping) -> None:
    weights = out / "step-10/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    result = sweep(onto="previous")
    assert states(result) == ["new", "failed", "new"]
    assert "cut short" in str(result.failed[0].error)
    # The chain goes on from the last that could be read.
    assert Path(result.checkpoints[2].onto).name == "step-2"


def test_a_full_disk_ends_the_sweep_and_the_next_goes_on(sweep: Sweeping, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[object]()

    def full_at_the_third(*args: object, **options: object) -> object:
        calls.append(args)
        if len(calls) == 3:
            raise NoSpaceError("the disk is full")
        return maskreg.extract(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("maskreg.workspace.verbs.sweep.extract", full_at_the_third)
    with pytest.raises(NoSpaceError):
        sweep()
    monkeypatch.undo()
    assert states(sweep()) == ["kept", "kept", "new"]


def test_a_note_that_is_damaged_or_cannot_be_written_costs_an_extraction(
    ada: maskreg.Workspace, sweep: Sweeping
) -> None:
    sweep()
    notes = ada.root / "sweeps"
    for note in notes.iterdir():
        note.write_bytes(b"{}")
    assert states(sweep()) == ["new"] * 3
    shutil.rmtree(notes)
    notes.write_bytes(b"in the way")
    assert states(sweep()) == ["new"] * 3


def test_what_makes_no_sense_is_refused_before_any_work(lab: Lab, ada: maskreg.Workspace, sweep: Sweeping) -> None:
    with pytest.raises(UsageError, match="is empty"):
        maskreg.sweep("", "run", source=lab.source, workspace=ada)
    with pytest.raises(UsageError, match="name the source"):
        sweep(source=None)
    with pytest.raises(UsageError, match="a tag of its own"):
        sweep("run:v1")
    with pytest.raises(UsageError, match="onto='last'"):
        sweep(onto="last")
    with pytest.raises(NotFoundError, match="source"):
        sweep(source=lab.folder / "no")


def test_the_tags_of_a_run_are_compared_by_a_pattern(lab: Lab, ada: maskreg.Workspace, sweep: Sweeping) -> None:
    sweep("team/run")
    maskreg.extract(lab.source, lab.target, "base", workspace=ada)
    names = [f"team/run:step-{number}" for number in STEPS]
    whole = maskreg.compare("base", "team/run:*", workspace=ada)
    assert [mask.name for mask in whole.masks] == ["base", *names]
    one_by_one = maskreg.compare("base", *names, workspace=ada)
    assert whole.to_json() == one_by_one.to_json()
    # What was named itself keeps its place.
    some = maskreg.compare("team/run:step-100", "team/run:step-*", workspace=ada)
    assert [mask.name for mask in some.masks] == [names[2], names[0], names[1]]
    with pytest.raises(NotFoundError, match="nothing in local matches run:step-"):
        maskreg.compare("base", "run:step-*", workspace=ada)
    with pytest.raises(UsageError, match="two masks or more"):
        maskreg.compare("team/run:step-1?", workspace=ada)


class Replacing:
    """Progress of a sweep that puts another checkpoint in the place of one, when its second extraction has begun."""

    def __init__(self, path: Path, other: Path) -> None:
        self._path, self._other, self._begun = path, other, 0

    def start(self, label: str, total_bytes: int) -> None:
        self._begun += label.startswith("extract ")
        if self._begun == 2 and self._other.exists():
            self._other.replace(self._path)

    def advance(self, n_bytes: int) -> None:
        pass


@pytest.mark.parametrize("onto", ["source", "previous"])
def test_a_source_that_is_replaced_in_the_middle_is_never_taken_for_the_one_that_was_read(
    lab: Lab, ada: maskreg.Workspace, out: Path, sweep: Sweeping, onto: str
) -> None:
    replaced = {"source": lab.source, "previous": out / "step-2"}[onto]
    make_checkpoint(lab.folder / "other", {name: moved(tensor, 0.3, 40) for name, tensor in SOURCE.items()})
    progress = Replacing(replaced / "model.safetensors", lab.folder / "other/model.safetensors")
    notes: list[str] = []
    ada.note = lambda said: notes.append(str(said))
    sweep(onto=onto, progress=progress)
    assert [f"{replaced} changed while it was read" in note for note in notes] == [True]
    again = sweep(onto=onto)
    for row in again.checkpoints:
        assert row.digest == maskreg.extract(row.onto, row.checkpoint, workspace=ada).digest
    # The third was compared with what lay there then.
    assert states(again) == ["new", "new", "kept"]


def test_a_source_that_was_given_open_has_no_notes(lab: Lab, ada: maskreg.Workspace, sweep: Sweeping) -> None:
    for _ in range(2):
        with ada.checkpoint(lab.source) as source:
            assert states(sweep(source=source)) == ["new"] * 3
            assert source.read("model.layers.0.mlp.up_proj.weight", 0, 2).size == 2
