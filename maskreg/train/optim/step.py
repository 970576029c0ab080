"""What a backend is given to update one tensor, and what it can do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from maskreg.train.optim.bits import Bits


class AdamWFactors(NamedTuple):
    """The numbers of one AdamW step, with everything that does not depend on the coordinate worked out.

    Algorithm 2 of arXiv 1711.05101 for a weight ``w`` with gradient ``g``, and the same with these names::

        m = beta1 m + (1 - beta1) g                 m += part1 * (g - m)
        v = beta2 v + (1 - beta2) g^2               v = beta2 * v + part2 * g * g
        m^ = m / (1 - beta1^t)
        v^ = v / (1 - beta2^t)                      root = 1 / sqrt(1 - beta2^t)
        w -= lr (m^ / (sqrt(v^) + eps) + decay w)   w = w * keep - size * m / (sqrt(v) * root + eps)

    Example, the first step (t = 1) with lr 0.1, betas 0.9 and 0.99, eps and decay 0, from w = 1 with g = 2: m = 0.2,
    v = 0.04, root = 10, size = 1, so w = 1 - 0.2 / (0.2 * 10) = 0.9: one step of size lr against the gradient's sign.
    ``scale`` multiplies the gradient first, ``keep`` is ``1 - lr * weight_decay``, ``part1`` and ``part2`` are
    ``1 - beta``, and ``size`` is ``lr / (1 - beta1^t)``.
    """

    scale: float
    keep: float
    part1: float
    beta2: float
    part2: float
    root: float
    eps: float
    size: float


@dataclass(frozen=True)
class AdamWStep:
    """One step of AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2), as torch.optim.AdamW takes it.

    ``step`` is its number, from 1; ``scale`` multiplies the gradient first, below 1 where gradients are clipped.
    """

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    step: int
    scale: float = 1.0

    def factors(self) -> AdamWFactors:
        """The numbers that fused kernels take."""
        return AdamWFactors(
            scale=self.scale,
            keep=1 - self.lr * self.weight_decay,
            part1=1 - self.beta1,
            beta2=self.beta2,
            part2=1 - self.beta2,
            root=1 / math.sqrt(1 - self.beta2**self.step),
            eps=self.eps,
            size=self.lr / (1 - self.beta1**self.step),
        )


@dataclass(frozen=True, eq=False)
class Gradient:
    """The gradient of one tensor.

    Attributes:
        values: flat; dense ``[numel]`` in any floating dtype, or packed fp32 ``[nnz]``.
        packed: which of the two.
    """

    values: torch.Tensor
    packed: bool


@dataclass(frozen=True, eq=False)
class Operands:
    """What a step works on, besides the optimizer's own state.

    Attributes:
        weights: flat and contiguous, in any floating dtype; coordinates outside the mask keep their bits.
        gradient: of the weights.
        bits: the mask.
        master: fp32 ``[nnz]``, whose roundings the masked weights are; None where weights are fp32 or wider. A weight
            that is not the rounding of its master was loaded since the last step: a step takes it over first.
    """

    weights: torch.Tensor
    gradient: Gradient
    bits: Bits
    master: torch.Tensor | None


class AdamWUpdate(NamedTuple):
    """A step of AdamW on one tensor; state is fp32 ``[nnz]``."""

    operands: Operands
    exp_avg: torch.Tensor
    exp_avg_sq: torch.Tensor
    step: AdamWStep


class Backend(Protocol):
    """Updates tensors, one or many. State is fp32 ``[nnz]``, in the order of coordinates."""

    def accumulate(self, total: torch.Tensor, gradient: torch.Tensor, bits: Bits) -> None:
        """Add the masked entries of a dense flat gradient to ``total``, fp32 ``[nnz]``."""

    def square_sum(self, values: torch.Tensor, bits: Bits | None) -> torch.Tensor:
        """Sum of squares of flat values; given bits, of the masked values only.

        Returns:
            float64, 0-D, on the device of the values; summed in float64.
        """

    def adamw(self, operands: Operands, exp_avg: torch.Tensor, exp_avg_sq: torch.Tensor, step: AdamWStep) -> None:
        """Take one step of AdamW."""

    def square_sums(self, each: Sequence[tuple[torch.Tensor, Bits | None]]) -> list[torch.Tensor]:
        """:meth:`square_sum` of each tensor."""
        return [self.square_sum(values, bits) for values, bits in each]

    def update(self, each: Sequence[AdamWUpdate]) -> None:
        """Take a step of each tensor; no two share memory that is written."""
        for update in each:
            self.adamw(*update)
