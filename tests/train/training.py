"""What small training runs train on."""

from __future__ import annotations

import torch


def rows() -> list[dict[str, torch.Tensor]]:
    """Random sequences of tokens."""
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(97, (8,), generator=generator) for _ in range(24)]
    return [{"input_ids": row, "labels": row} for row in ids]
