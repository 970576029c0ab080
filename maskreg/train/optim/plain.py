"""Steps in PyTorch's own operations, on any device, bit for bit what its optimizers do to an fp32 copy.

A slice of 2^20 coordinates at a time is unpacked, gathered, updated and scattered, so that the workspace stays below
64 MiB whatever the size of the tensor.
"""

from __future__ import annotations

import torch
from torch.optim.adamw import adamw as torch_adamw
from torch.optim.sgd import sgd as torch_sgd

from maskreg.mask.packed import PAD_BITS
from maskreg.train.optim.bits import SLICE_WORDS, Bits, Slice
from maskreg.train.optim.step import Adam, Gradient, Operands, Sgd


class Plain:
    """Runs wherever PyTorch does."""

    def accumulate(self, into: torch.Tensor, gradient: torch.Tensor, bits: Bits) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        for part, places in bits.each():
            into[part.entries].add_(gradient[part.coordinates].index_select(0, places))

    def square_sum(self, values: torch.Tensor, bits: Bits | None) -> torch.Tensor:
        """See :class:`maskreg.train.optim.step.Backend`."""
        total = torch.zeros((), dtype=torch.float64, device=values.device)
        if bits is None:
            found = iter(torch.split(values, SLICE_WORDS * PAD_BITS))
        else:
            found = (values[part.coordinates].index_select(0, places) for part, places in bits.each())
        for some in found:
            total += some.double().square().sum()
        return total

    def adamw(self, on: Operands, exp_avg: torch.Tensor, exp_avg_sq: torch.Tensor, now: Adam) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        for part, places in on.bits.each():
            values = _values(on, part, places)
            torch_adamw(
                [values],
                [_gradient(on.gradient, part, places, now.scale)],
                [exp_avg[part.entries]],
                [exp_avg_sq[part.entries]],
                [],
                [torch.tensor(float(now.step - 1))],
                foreach=False,
                amsgrad=False,
                beta1=now.beta1,
                beta2=now.beta2,
                lr=now.lr,
                weight_decay=now.weight_decay,
                eps=now.eps,
                maximize=False,
            )
            _scatter(on.weights, part, places, values)

    def sgd(self, on: Operands, velocity: torch.Tensor | None, now: Sgd) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        for part, places in on.bits.each():
            values = _values(on, part, places)
            torch_sgd(
                [values],
                [_gradient(on.gradient, part, places, now.scale)],
                [None if velocity is None else velocity[part.entries]],
                foreach=False,
                weight_decay=now.weight_decay,
                momentum=now.momentum,
                lr=now.lr,
                dampening=0.0,
                nesterov=now.nesterov,
                maximize=False,
            )
            _scatter(on.weights, part, places, values)


def _values(on: Operands, part: Slice, places: torch.Tensor) -> torch.Tensor:
    return on.weights[part.coordinates].index_select(0, places) if on.master is None else on.master[part.entries]


def _gradient(gradient: Gradient, part: Slice, places: torch.Tensor, scale: float) -> torch.Tensor:
    if gradient.packed:
        values = gradient.values[part.entries]
        return values if scale == 1.0 else values * scale
    values = gradient.values[part.coordinates].index_select(0, places).float()
    return values if scale == 1.0 else values.mul_(scale)


def _scatter(weights: torch.Tensor, part: Slice, places: torch.Tensor, values: torch.Tensor) -> None:
    weights[part.coordinates].scatter_(0, places, values.to(weights.dtype))
