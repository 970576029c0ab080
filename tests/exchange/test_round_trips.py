"""What is written in another tool's format comes back as the artifact that it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import maskreg
from maskreg.errors import CorruptError, FormatError, NoSpaceError
from maskreg.exchange import FORMATS
from maskreg.exchange.base import parse_lineage
from maskreg.exchange.outgoing import Outgoing
from maskreg.progress import Silent
from tests.checkpoints import bf16, flip, make_checkpoint
from tests.exchange.conftest import SOURCE, Lab, target_of

VALUES = [
    pytest.param("slime", {}),
    pytest.param("slime", {"encoding": "overwrite", "checksum": "adler32"}),
    pytest.param("skyrl", {"version": 7}),
    pytest.param("nemo-rl", {}, marks=pytest.mark.torch),
    pytest.param("nemo-rl", {"encoding": "overwrite"}, marks=pytest.mark.torch),
    pytest.param("sparse-safetensors", {"model_version": 11}),
]

NAMES = [pytest.param(name, marks=[pytest.mark.torch] * (name == "nemo-rl")) for name in FORMATS]


@pytest.mark.parametrize(("name", "options"), VALUES)
def test_values_come_back_as_the_same_artifact(lab: Lab, name: str, options: dict[str, Any]) -> None:
    out = lab.folder / "out"
    converted = maskreg.convert_to("toy:v1", name, out, source=lab.source, options=options, workspace=lab.space)
    assert (converted.digest, converted.source, converted.out) == (lab.toy.digest, lab.source, out)
    assert converted.coordinates == sum(row.differing for row in lab.toy.artifact.by_name.values())
    assert sum(file.stat().st_size for file in out.iterdir()) == converted.bytes
    assert converted.notes == ()
    back = maskreg.convert_from(out, name, lab.source, "back", workspace=lab.space)
    assert back.digest == lab.toy.digest


@pytest.mark.parametrize("name", NAMES[:-1])
def test_an_update_without_changes_comes_back_too(lab: Lab, name: str) -> None:
    same = maskreg.extract(lab.source, lab.source, "same", workspace=lab.space)
    maskreg.convert_to("same", name, lab.folder / "out", workspace=lab.space)
    back = maskreg.convert_from(lab.folder / "out", name, lab.source, "back", workspace=lab.space)
    assert back.digest == same.digest


@pytest.mark.parametrize("name", NAMES[:-1])
def test_what_no_patch_can_hold_is_refused_by_name(lab: Lab, tmp_path: Path, name: str) -> None:
    longer = {**target_of(SOURCE), "model.half.weight": bf16((31, 3), 6)}
    target = make_checkpoint(tmp_path / "longer", longer)
    maskreg.extract(lab.source, target, "longer", allow_mismatch=True, workspace=lab.space)
    with pytest.raises(maskreg.UsageError, match=r"model\.half\.weight"):
        maskreg.convert_to("longer", name, tmp_path / "out", workspace=lab.space)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", NAMES[:-1])
def test_another_source_is_refused(lab: Lab, name: str) -> None:
    out = lab.folder / "out"
    maskreg.convert_to("toy:v1", name, out, workspace=lab.space)
    # Some formats have checksums of the target's values, which tell before the roots do.
    with pytest.raises(maskreg.DataError, match=r"root sha256:.*root sha256:|tensor model\.\S+: does not match"):
        maskreg.convert_from(out, name, lab.target, "back", workspace=lab.space)
    assert not list((lab.folder / "home" / "staging").glob("*"))


@pytest.mark.parametrize("name", ["sparse-safetensors", "safetensors-mask"])
def test_a_flipped_value_is_refused_by_name(lab: Lab, name: str) -> None:
    out = lab.folder / "out.safetensors"
    maskreg.convert_to("toy:v1", name, out, workspace=lab.space)
    flip(out, -1)
    with pytest.raises(CorruptError, match=r"\bmodel\.\S+: "):
        maskreg.convert_from(out, name, lab.source, "back", workspace=lab.space)
    assert not list((lab.folder / "home" / "staging").glob("*"))


class Interrupted(BaseException):
    """What Ctrl-C raises, but for pytest, which would end."""


class Interrupting(Silent):
    """Presses Ctrl-C after the first block."""

    def advance(self, n_bytes: int) -> None:
        raise Interrupted


@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk_an_interrupt_and_damage_leave_nothing(
    lab: Lab, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, out = sorted(lab.folder.iterdir()), lab.folder / "out"
    with monkeypatch.context() as full, pytest.raises(NoSpaceError, match=r"\b10\b"):
        full.setattr("maskreg.disk.free_bytes", lambda _: 10)
        maskreg.convert_to("toy:v1", name, out, workspace=lab.space)
    with pytest.raises(Interrupted):
        maskreg.convert_to("toy:v1", name, out, progress=Interrupting(), workspace=lab.space)
    for path in (lab.folder / "home" / "artifacts").rglob("c/*"):
        if path.is_file():
            flip(path)
    with pytest.raises(maskreg.DataError):
        maskreg.convert_to("toy:v1", name, out, workspace=lab.space)
    assert sorted(lab.folder.iterdir()) == before


def test_lineage_that_is_no_lineage_is_refused(lab: Lab) -> None:
    text = json.loads(Outgoing(lab.toy.artifact).mask_lineage())
    for change, message in (
        ({"rule": "about:1"}, "'about:1'"),
        ({"kind": "analysis"}, "kind"),
        ({"source": {"root": text["source"]["root"], "hub": "/etc/passwd"}}, "'/etc/passwd'"),
        ({"parents": ["x"]}, "parents"),
        ({"checks": {"model.nothing": "0"}}, "checks"),
        ({"recipe": {"note": "\u202e"}}, "maskreg"),
    ):
        with pytest.raises(FormatError, match=message):
            parse_lineage(json.dumps({**text, **change}, ensure_ascii=False), "a file")
    with pytest.raises(FormatError, match=r"^a file: "):
        parse_lineage(3, "a file")
    assert parse_lineage(None, "a file") is None
