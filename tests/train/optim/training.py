"""A small model, masks of it, and how it is trained."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from maskreg.mask.packed import TensorMask, pack

KINDS = ["dense", "packed"]


def model(dtype: torch.dtype = torch.bfloat16) -> torch.nn.Module:
    """The same in every call."""
    torch.manual_seed(1)
    layers = torch.nn.Linear(300, 700), torch.nn.GELU(), torch.nn.Linear(700, 30)
    return torch.nn.Sequential(*layers).to(dtype)


def masked(net: torch.nn.Module, density: float = 0.3, seed: int = 0) -> dict[str, TensorMask]:
    """A random mask of every parameter."""
    drawn = np.random.default_rng(seed)
    return {
        name: TensorMask(name, tuple(p.shape), pack(drawn.random(p.shape) < density))
        for name, p in net.named_parameters()
    }


def run(
    optimizer: torch.optim.Optimizer,
    net: torch.nn.Module,
    steps: int = 2,
    before_step: Callable[[], None] = lambda: None,
) -> None:
    """Steps on inputs that are the same in every call."""
    torch.manual_seed(2)
    for _ in range(steps):
        x = torch.randn(16, 300, dtype=next(net.parameters()).dtype)
        net(x).float().square().sum().backward()
        before_step()
        optimizer.step()
        optimizer.zero_grad()
