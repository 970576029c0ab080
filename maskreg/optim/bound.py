"""A parameter that has found its mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from maskreg.live.shards import local_of
from maskreg.optim.bits import Bits


@dataclass(eq=False)
class Bound:
    """One parameter of an optimizer, what of it is trained, and its gradient so far.

    Attributes:
        name: as the running model calls it.
        parameter: in the optimizer's groups; maybe sharded.
        group: the parameter group it is in.
        bits: mask of the part that is here.
        fingerprint: xxh3-128 of the whole tensor's mask.
        packed: gradient of its masked entries so far, fp32 ``[nnz]``, where gradients are kept packed.
        stepped: whether the step within a backward pass has been taken.
    """

    name: str
    parameter: torch.Tensor
    group: dict[str, Any]
    bits: Bits
    fingerprint: bytes
    packed: torch.Tensor | None = None
    stepped: bool = False

    @property
    def weights(self) -> torch.Tensor:
        """The part of the parameter that is here, sharing memory with it."""
        return local_of(self.parameter.detach())

    @property
    def dense(self) -> torch.Tensor | None:
        """The gradient that autograd has left here, flat, or None."""
        grad = self.parameter.grad
        return None if grad is None else local_of(grad).reshape(-1)
