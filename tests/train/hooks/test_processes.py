"""Trainer, and sharding as Accelerate does it, in several processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_in_two_processes_nothing_outside_the_mask_moves(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*torchrun, str(ROOT / "tests/train/processes.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ranks = json.loads((tmp_path / "found.json").read_text())
    assert len(ranks) == 2
    assert ranks[0] == ranks[1]
    assert ranks[0]["resumed alike"]
    for kind in ("replicated", "sharded"):
        outside, inside = ranks[0][kind]
        assert outside == 0 < inside
