"""A checkpoint, and what is written like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.plan import OutputPlan, plan_like
from tests.checkpoints import bf16, make_checkpoint


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "source", {name: bf16((8,), n) for n, name in enumerate("abcd")})


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def plan_for(source: Path) -> OutputPlan:
    with open_checkpoint(source) as checkpoint:
        return plan_like(checkpoint)
