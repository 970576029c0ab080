"""A parameter that has found its mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import xxhash

from maskreg.live.shards import Layout, Order, cut, layout_of, local_of
from maskreg.mask.packed import TensorMask
from maskreg.train.optim.bits import Bits
from maskreg.train.optim.refusals import refuse_foreign, refuse_sparse


@dataclass(eq=False)
class Bound:
    """One parameter of an optimizer, what of it is trained, and its gradient so far.

    Attributes:
        name: as the running model calls it.
        parameter: in the optimizer's groups; maybe sharded.
        group: the parameter group it is in.
        layout: which part of it is here.
        order: where the masked coordinates of that part stand in the whole mask.
        bits: mask of the part that is here.
        fingerprint: xxh3-128 of the whole tensor's mask.
        packed: gradient of its masked entries so far, fp32 ``[nnz]``, where gradients are kept packed.
        stepped: whether the step within a backward pass has been taken.
    """

    name: str
    parameter: torch.Tensor
    group: dict[str, Any]
    layout: Layout
    order: Order
    bits: Bits
    fingerprint: bytes
    packed: torch.Tensor | None = None
    stepped: bool = False

    @classmethod
    def of(cls, name: str, parameter: torch.Tensor, group: dict[str, Any], mask: TensorMask) -> Bound:
        """Cut the part that is here out of the mask of a whole parameter.

        Raises:
            UsageError: the parameter is one that masks cannot be laid over; the hint says what to change.
        """
        refuse_foreign(name, parameter)
        layout = layout_of(name, parameter)
        packed, order = cut(mask.packed, layout.part)
        bits = Bits.of(packed, layout.part.here, local_of(parameter.detach()).device)
        return cls(name, parameter, group, layout, order, bits, xxhash.xxh3_128_digest(mask.packed.data))

    @property
    def weights(self) -> torch.Tensor:
        """The part of the parameter that is here, sharing memory with it."""
        return local_of(self.parameter.detach())

    @property
    def dense(self) -> torch.Tensor | None:
        """The gradient that autograd has left here, flat, or None.

        Raises:
            UsageError: it is a sparse one.
        """
        grad = self.parameter.grad
        if grad is None:
            return None
        refuse_sparse(self.name, grad)
        if self.layout.mesh is not None and grad.placements != self.parameter.placements:  # type: ignore[attr-defined]
            grad = grad.redistribute(placements=self.parameter.placements)  # type: ignore[attr-defined]
        return local_of(grad).reshape(-1)

    def follow(self) -> None:
        """Bring the mask, and the gradient so far, to where the parameter is now."""
        device = self.weights.device
        self.bits = self.bits.to(device)
        if self.packed is not None:
            self.packed = self.packed.to(device)
