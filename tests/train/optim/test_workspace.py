"""No backend takes more memory for its work than it says, for a tensor of any size."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from maskreg.mask.packed import PAD_BITS
from maskreg.train.optim.backends import Cpu, Plain
from maskreg.train.optim.bits import SLICE_WORDS, Bits
from maskreg.train.optim.step import AdamWStep, Backend, Gradient, Operands

MOST = 64 << 20
NUMEL = 17 * SLICE_WORDS * PAD_BITS
"""So many that an fp32 copy of them alone would be more than that."""


@pytest.fixture(scope="module")
def tensors() -> tuple[torch.Tensor, Bits, list[torch.Tensor]]:
    """Weights, a full mask, and four packed vectors."""
    words, rank = torch.full((NUMEL // 64,), -1), torch.arange(0, NUMEL, 64, dtype=torch.int32)
    state = [torch.zeros(NUMEL) for _ in range(4)]
    return torch.zeros(NUMEL, dtype=torch.bfloat16), Bits(words, rank, NUMEL, NUMEL), state


@pytest.mark.parametrize("backend", [Plain(), Cpu()], ids=lambda backend: type(backend).__name__)
@pytest.mark.parametrize(
    ("work", "packed"),
    [("adamw", False), ("adamw", True), ("accumulate", False), ("square_sum", False), ("square_sum of all", True)],
)
def test_the_workspace_is_bounded(
    work: str, packed: bool, backend: Backend, tensors: tuple[torch.Tensor, Bits, list[torch.Tensor]], tmp_path: Path
) -> None:
    weights, bits, (first, second, master, slopes) = tensors
    gradient = Gradient(slopes if packed else weights.clone(), packed)
    on = Operands(weights, gradient, bits, master)
    adam = AdamWStep(1e-3, 0.9, 0.99, 1e-8, 0.1, 1, 0.5)
    does: dict[str, Callable[[], object]] = {
        "adamw": lambda: backend.adamw(on, first, second, adam),
        "accumulate": lambda: backend.accumulate(first, gradient.values, bits),
        "square_sum": lambda: backend.square_sum(gradient.values, bits),
        "square_sum of all": lambda: backend.square_sum(gradient.values, None),
    }
    used = workspace(does[work], tmp_path / "trace.json")
    assert used < MOST
    assert isinstance(backend, Cpu) or used > 1 << 20


def workspace(work: Callable[[], object], trace: Path) -> int:
    """The most bytes that were in use at once of what PyTorch allocated meanwhile."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        work()
    profile.export_chrome_trace(str(trace))
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["name"] == "[memory]"]
    most = here = 0
    for event in sorted(events, key=lambda event: event["ts"]):
        here += event["args"]["Bytes"]
        most = max(most, here)
    return most
