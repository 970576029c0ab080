"""Sharding as Accelerate does it, in several processes."""

from __future__ import annotations

from pathlib import Path

from tests.ranks import in_processes


def test_in_two_processes_nothing_outside_the_mask_moves(tmp_path: Path) -> None:
    ranks = in_processes("tests/train/processes.py", tmp_path, 2)
    assert ranks[0] == ranks[1]
    outside, inside = ranks[0]["sharded"]
    assert outside == 0 < inside
