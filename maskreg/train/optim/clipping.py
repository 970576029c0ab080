"""Clipping by the norm of the whole model's gradients, also when those are sharded."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Literal, NamedTuple

import torch
import torch.distributed as dist

from maskreg.errors import DataError
from maskreg.live.shards import Layout

Clip = Literal["masked", "dense"]
NonFinite = Literal["raise", "skip", "propagate"]


class Clipping(NamedTuple):
    """How gradients are clipped.

    Attributes:
        max_norm: the largest norm that is left as it is; None does not clip.
        norm_of: whether the norm covers the masked entries or the dense gradients.
        nonfinite: whether a norm that is infinite or NaN raises, skips the step, or is multiplied by.
    """

    max_norm: float | None
    norm_of: Clip
    nonfinite: NonFinite

    @property
    def needs_norm(self) -> bool:
        """Whether a step depends on the norm."""
        return self.max_norm is not None or self.nonfinite != "propagate"

    def admits(self, norm: float, subject: str, effect: str) -> bool:
        """Whether an update may go on."""
        if math.isfinite(norm) or self.nonfinite == "propagate":
            return True
        if self.nonfinite == "raise":
            raise DataError(
                f"{subject} has norm {norm}; {effect}",
                hint='lower lr, and look at the loss; nonfinite="skip" leaves such steps out, "propagate" takes them as'
                " PyTorch does",
            )
        warnings.warn(f"{subject} has norm {norm}; {effect}", RuntimeWarning, stacklevel=4)
        return False

    def factor(self, norm: torch.Tensor) -> float:
        """What gradients of this norm are multiplied by, as ``torch.nn.utils.clip_grad_norm_`` does: NaN if that is."""
        # In this order: min(1.0, nan) is 1.0, which would take a step without clipping.
        return 1.0 if self.max_norm is None else min(self.max_norm / (float(norm) + 1e-6), 1.0)


def total_norm(squares: Iterable[tuple[Layout, torch.Tensor | None]]) -> torch.Tensor:
    """The 2-norm of all gradients together, each coordinate counted once.

    A parameter is either complete in this process, alone or as one of several identical replicas, or sharded over a
    process group. Only sums of sharded parameters are reduced, each over its own group; replicas hold equal sums, and
    reducing those too would count them several times. On a mesh of 2 replicas x 2 shards::

        rank            0        1        2        3
        shard of w      w[:2]    w[2:]    w[:2]    w[2:]
        sum of squares  5        20       5        20       all_reduce over {0, 1} and {2, 3}
        norm            sqrt(5 + 20) everywhere, not sqrt(50)

    Sums are taken in fp64 and only the root is rounded to fp32, so that the same gradients have the same norm in any
    number of processes: the order of summation changes fp64's last bits, which rounding to fp32 drops.

    Args:
        squares: for every parameter, in the same order in all processes: its layout, and the sum of squares of the
            part of its gradient in this process, float64 0-D; None where there is no gradient.

    Returns:
        fp32, 0-D, in main memory; the same in all processes.
    """
    unsharded: list[torch.Tensor] = []
    sharded: dict[dist.ProcessGroup, torch.Tensor] = {}
    for layout, part in squares:
        group = layout.group
        if group is not None:
            # Also without a gradient here: every process of the group has to take part in the reduction.
            total = sharded.setdefault(group, torch.zeros((), dtype=torch.float64, device=layout.device))
            if part is not None:
                total += part.to(total.device)
        elif part is not None:
            unsharded.append(part)
    for group, total in sharded.items():
        dist.all_reduce(total, group=group)
    # One synchronization per device, not one per tensor.
    devices = {part.device for part in unsharded}
    stacks = [torch.stack([part for part in unsharded if part.device == device]) for device in devices]
    totals = [total.sum().cpu() for total in (*stacks, *sharded.values())]
    return torch.stack([torch.zeros((), dtype=torch.float64), *totals]).sum().sqrt().float()
