"""What small training runs train on."""

from __future__ import annotations

import numpy as np
import torch

from maskreg.mask.packed import TensorMask, pack


def rows() -> list[dict[str, torch.Tensor]]:
    """Random sequences of tokens."""
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(97, (8,), generator=generator) for _ in range(24)]
    return [{"input_ids": row, "labels": row} for row in ids]


def drawn(model: torch.nn.Module, density: float = 0.3) -> dict[str, TensorMask]:
    """A random mask of every parameter."""
    random = np.random.default_rng(0)
    named = model.named_parameters()
    return {n: TensorMask(n, tuple(p.shape), pack(random.random(p.shape) < density)) for n, p in named}
