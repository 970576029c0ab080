"""One artifact in place of a chain, through the command."""

from __future__ import annotations

from pathlib import Path

import maskreg
from tests.checkpoints import make_checkpoint, moved
from tests.cli.conftest import Run, tensors


def test_a_chain_becomes_one_artifact(run: Run, pair: tuple[Path, Path], tmp_path: Path) -> None:
    later = {n: moved(t, 0.5, 50 + i) for i, (n, t) in enumerate(tensors().items())}
    last = make_checkpoint(tmp_path / "last", later)
    for step in (pair[1], last):
        maskreg.publish(step, "toy/run", source=pair[0])
    squashed = run("squash", "toy/run", "--name", "toy/run:whole", "--json").json
    ends = run("extract", pair[0], last, "--name", "ends", "--json").json
    assert squashed["digest"] == ends["digest"]
    assert "recipe       link" in run("show", "toy/run").out
    assert "toy/run does not stand on ends" in run("squash", "toy/run", "--since", "ends", "--name", "x", status=2).err
    wrong = run("squash", "toy/run", "--source", last, "--name", "x", status=65).err
    assert "expected root" in wrong
    assert f"--source {pair[0]}" in wrong
    assert "there is no none" in run("squash", "none", "--name", "x", status=66).err
