"""The norm of gradients that lie over several processes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist

from maskreg.live.shards import Layout


def norm(squares: Iterable[tuple[Layout, torch.Tensor | None]]) -> torch.Tensor:
    """The 2-norm of all gradients together, each counted once, however many processes have it.

    The root of sums in fp64 is rounded to fp32, so that the same gradients in another number of processes have the
    same norm.

    Args:
        squares: of every parameter, in the same order in all processes: where it lies, and the sum of the squares of
            the part of its gradient that is here, float64 without dimensions; None where there is no gradient.

    Returns:
        fp32, 0-dimensional, in main memory; the same in all processes.
    """
    alone: list[torch.Tensor] = []
    sums: dict[dist.ProcessGroup, torch.Tensor] = {}
    for layout, part in squares:
        group = layout.group
        if group is not None:
            total = sums.setdefault(group, torch.zeros((), dtype=torch.float64, device=layout.device))
            if part is not None:
                total += part.to(total.device)
        elif part is not None:
            alone.append(part)
    for group, total in sums.items():
        dist.all_reduce(total, group=group)
    # One wait for each device, not for each tensor.
    every = [torch.stack([one for one in alone if one.device == device]) for device in {one.device for one in alone}]
    totals = [total.sum().cpu() for total in (*every, *sums.values())]
    return torch.stack([torch.zeros((), dtype=torch.float64), *totals]).sum().sqrt().float()
