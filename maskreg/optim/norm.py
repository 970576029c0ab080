"""The norm of gradients that lie over several processes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist

from maskreg.live.shards import Layout

_RUN = 1 << 20
"""Entries squared at once."""


def norm(gradients: Iterable[tuple[Layout, torch.Tensor | None]]) -> torch.Tensor:
    """The 2-norm of all gradients together, each counted once, however many processes have it.

    Squares are summed in fp64 and the root is rounded to fp32, so that the same gradients in another number of
    processes have the same norm.

    Args:
        gradients: of every parameter, in the same order in all processes: where it lies, and the part here, flat;
            None where there is none.

    Returns:
        fp32, 0-dimensional, in main memory; the same in all processes.
    """
    alone: list[torch.Tensor] = []
    sums: dict[dist.ProcessGroup, torch.Tensor] = {}
    for layout, values in gradients:
        group = layout.group
        if group is not None:
            total = sums.setdefault(group, torch.zeros((), dtype=torch.float64, device=layout.device))
            if values is not None:
                total += _squares(values).to(total.device)
        elif values is not None:
            alone.append(_squares(values))
    for group, total in sums.items():
        dist.all_reduce(total, group=group)
    # One wait for each device, not for each tensor.
    every = [torch.stack([one for one in alone if one.device == device]) for device in {one.device for one in alone}]
    parts = [part.cpu().double().sum() for part in (*every, *sums.values())]
    return torch.stack([torch.zeros((), dtype=torch.float64), *parts]).sum().sqrt().float()


def _squares(values: torch.Tensor) -> torch.Tensor:
    # Apple's GPUs have no fp64.
    wide = torch.float32 if values.device.type == "mps" else torch.float64
    parts = [torch.linalg.vector_norm(run, dtype=wide).square() for run in torch.split(values, _RUN)]
    return torch.stack(parts).sum()
