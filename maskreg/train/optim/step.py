"""What a step of an optimizer works on, and what carries it out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch

from maskreg.train.optim.bits import Bits


@dataclass(frozen=True)
class Adam:
    """One step of AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2), as torch.optim.AdamW takes it.

    Attributes:
        lr: learning rate.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        eps: added to the root of the second moment.
        weight_decay: decoupled.
        step: which step this is, from 1.
        scale: the gradient is multiplied by it first, which is how gradients are clipped.
    """

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    step: int
    scale: float = 1.0

    def factors(self) -> tuple[float, ...]:
        """What the update is made of, where it is one expression.

        Returns:
            What weights are multiplied by, 1 - beta1, beta2, 1 - beta2, one over the root of the second moment's bias
            correction, eps, and the rate over the first moment's bias correction.
        """
        return (
            1 - self.lr * self.weight_decay,
            1 - self.beta1,
            self.beta2,
            1 - self.beta2,
            1 / math.sqrt(1 - self.beta2**self.step),
            self.eps,
            self.lr / (1 - self.beta1**self.step),
        )


@dataclass(frozen=True)
class Sgd:
    """One step of SGD, its momentum as in Sutskever et al. (ICML 2013), as torch.optim.SGD takes it.

    Attributes:
        lr: learning rate.
        momentum: decay of the velocity; 0 keeps none.
        weight_decay: times the weights, added to the gradient.
        nesterov: whether the gradient is added once more.
        step: which step this is, from 1.
        scale: the gradient is multiplied by it first.
    """

    lr: float
    momentum: float
    weight_decay: float
    nesterov: bool
    step: int
    scale: float = 1.0


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
    """What a step works on, besides the state that is its optimizer's own.

    Attributes:
        weights: flat and contiguous, in any floating dtype; the bits of coordinates outside the mask stay.
        gradient: of the weights.
        bits: the mask.
        master: fp32 ``[nnz]``, of which the masked weights are roundings; None where weights are fp32 or wider.
    """

    weights: torch.Tensor
    gradient: Gradient
    bits: Bits
    master: torch.Tensor | None


class Backend(Protocol):
    """Carries out steps on one tensor. State is fp32 ``[nnz]``, in the order of coordinates."""

    def accumulate(self, into: torch.Tensor, gradient: torch.Tensor, bits: Bits) -> None:
        """Add the masked entries of a dense flat gradient to fp32 ``[nnz]``."""

    def square_sum(self, values: torch.Tensor, bits: Bits | None) -> torch.Tensor:
        """Sum of the squares of flat values, of the masked ones alone where there are bits.

        Returns:
            float64, without dimensions, where the values are; summed in float64.
        """

    def adamw(self, on: Operands, exp_avg: torch.Tensor, exp_avg_sq: torch.Tensor, now: Adam) -> None:
        """Take one step of AdamW."""

    def sgd(self, on: Operands, velocity: torch.Tensor | None, now: Sgd) -> None:
        """Take one step of SGD."""
