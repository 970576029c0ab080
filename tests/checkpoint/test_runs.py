"""Checkpoints that runs leave behind give the artifact of the same weights in safetensors."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import maskreg
from maskreg.checkpoint import open_checkpoint
from tests.repository import ROOT


@pytest.fixture(scope="module")
def runs(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "all"
    command: list[Path | str] = [programs / "python", "tests/checkpoint/runs.py", folder]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("path", ["dcp-2/target", "dcp-4/target", "fsdp-2", "fsdp-4", "hsdp", "tensor-parallel"])
def test_the_artifact_is_that_of_safetensors(runs: Path, path: str) -> None:
    expected = maskreg.extract(runs / "source", runs / "target")
    assert maskreg.extract(runs / "source", runs / path).digest == expected.digest
    assert maskreg.extract(runs / "dcp-2" / "source", runs / path).digest == expected.digest


def test_a_run_is_the_source_of_apply(runs: Path, tmp_path: Path) -> None:
    expected = maskreg.extract(runs / "source", runs / "target")
    applied = maskreg.apply(expected, source=runs / "dcp-4" / "source", out=tmp_path / "out")
    with open_checkpoint(tmp_path / "out") as made, open_checkpoint(runs / "target") as target:
        assert made.format == "safetensors"
        assert dict(made.tensors) == dict(target.tensors)
        for name, info in target.tensors.items():
            assert made.read(name, 0, info.numel).tobytes() == target.read(name, 0, info.numel).tobytes()
    assert any("optimizer (27 tensors)" in note for note in applied.notes)


def test_what_only_the_run_uses_does_not_travel(runs: Path) -> None:
    with open_checkpoint(runs / "fsdp-2") as checkpoint:
        assert list(checkpoint.small_files()) == ["config.json"]
        assert checkpoint.small_files()["config.json"].parent.name == "huggingface"
