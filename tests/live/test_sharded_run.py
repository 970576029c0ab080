"""A sharded model publishes, and another one follows it, in two processes."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.checkpoints import Tensor, make_checkpoint
from tests.live.following import Model
from tests.ranks import in_processes


def test_processes_publish_and_follow_together(programs: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    tensors: dict[str, Tensor] = {
        name: ("BF16", each.detach().view(torch.int16).numpy().view("u2")) for name, each in Model().named_parameters()
    }
    make_checkpoint(tmp_path / "source", tensors)
    first, second = in_processes(programs, "tests/live/following.py", tmp_path, 2)
    for rank, of in enumerate((first, second)):
        assert [of[f"published {step}"] for step in range(2)] == [rank == 0] * 2
        assert [of[f"links {step}"] for step in range(2)] == [1, 1]
        assert [of[f"equal {step}"] for step in range(2)] == [True, True]
        assert " extra: " in of["refused"]
