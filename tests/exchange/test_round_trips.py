"""What is written in another tool's format comes back as the artifact that it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import maskreg
from maskreg.exchange import FORMATS
from tests.exchange.conftest import Lab

VALUES: list[tuple[str, dict[str, Any]]] = [
    ("slime", {}),
    ("slime", {"encoding": "overwrite", "checksum": "adler32"}),
    ("vllm", {}),
    ("sparse-safetensors", {}),
]


def test_the_names_are_those_of_the_table() -> None:
    assert all(known.name == name and known.accepts for name, known in FORMATS.items())


@pytest.mark.parametrize(("name", "options"), VALUES)
def test_values_come_back_as_the_same_artifact(lab: Lab, name: str, options: dict[str, Any]) -> None:
    out = lab.folder / "out"
    converted = maskreg.convert_to("toy:v1", name, out, options=options, workspace=lab.space)
    assert (converted.digest, converted.source, converted.out) == (lab.toy.digest, lab.source, out)
    assert converted.coordinates == sum(row.differing for row in lab.toy.artifact.by_name.values())
    assert sum(file.stat().st_size for file in out.iterdir()) == converted.bytes
    assert converted.notes == ()
    back = maskreg.convert_from(out, name, lab.source, "back", workspace=lab.space)
    assert back.digest == lab.toy.digest


@pytest.mark.parametrize("name", sorted({name for name, _ in VALUES}))
def test_an_update_without_changes_comes_back_too(lab: Lab, name: str) -> None:
    same = maskreg.extract(lab.source, lab.source, "same", workspace=lab.space)
    maskreg.convert_to("same", name, lab.folder / "out", workspace=lab.space)
    back = maskreg.convert_from(lab.folder / "out", name, lab.source, "back", workspace=lab.space)
    assert back.digest == same.digest


@pytest.mark.parametrize("name", sorted({name for name, _ in VALUES}))
def test_the_rule_comes_back(lab: Lab, name: str) -> None:
    coarse = maskreg.extract(lab.source, lab.target, "coarse", rule="abs:1e-4", workspace=lab.space)
    maskreg.convert_to("coarse", name, lab.folder / "out", workspace=lab.space)
    back = maskreg.convert_from(lab.folder / "out", name, lab.source, "back", workspace=lab.space)
    assert back.manifest.rule == coarse.manifest.rule
    assert back.manifest.target.root == coarse.manifest.target.root


@pytest.mark.parametrize("name", sorted({name for name, _ in VALUES}))
def test_what_no_patch_can_hold_is_refused_by_name(lab: Lab, tmp_path: Path, name: str) -> None:
    from tests.checkpoints import bf16, make_checkpoint
    from tests.exchange.conftest import SOURCE, target_of

    longer = {**target_of(SOURCE), "model.half.weight": bf16((31, 3), 6)}
    target = make_checkpoint(tmp_path / "longer", longer)
    maskreg.extract(lab.source, target, "longer", allow_mismatch=True, workspace=lab.space)
    with pytest.raises(maskreg.UsageError, match=r"reshapes or retypes tensor model\.half\.weight"):
        maskreg.convert_to("longer", name, tmp_path / "out", workspace=lab.space)
    assert not (tmp_path / "out").exists()
