"""A sharded model publishes, and another one follows it, in two processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from tests.checkpoints import Tensor, make_checkpoint
from tests.live.following import Model
from tests.repository import ROOT


def test_processes_publish_and_follow_together(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tensors: dict[str, Tensor] = {
        name: ("BF16", each.detach().view(torch.int16).numpy().view("u2")) for name, each in Model().named_parameters()
    }
    make_checkpoint(tmp_path / "source", tensors)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*torchrun, str(ROOT / "tests/live/following.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = json.loads((tmp_path / "found.json").read_text())
    for rank, of in enumerate((first, second)):
        assert [of[f"published {step}"] for step in range(2)] == [rank == 0] * 2
        assert [of[f"links {step}"] for step in range(2)] == [1, 1]
        assert [of[f"equal {step}"] for step in range(2)] == [True, True]
        assert "extra: a weight of this model that the source lacks" in of["refused"]
    assert second["refused"].startswith("process 0: ")
