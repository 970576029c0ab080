"""Steps in PyTorch's own operations, on any device, bit for bit what its optimizers do to an fp32 copy.

In slices of 2^20 coordinates, masked weights, gradients and state are gathered into vectors, updated by the functions
of ``torch.optim`` and scattered back, so that the workspace stays below 64 MiB whatever the size of the tensor.
"""

from __future__ import annotations

import torch
from torch.optim.adamw import adamw as torch_adamw
from torch.optim.sgd import sgd as torch_sgd

from maskreg.live.memory import CODES
from maskreg.mask.packed import PAD_BITS
from maskreg.train.optim.bits import SLICE_WORDS, Bits, Slice
from maskreg.train.optim.step import AdamWStep, Backend, Gradient, Operands, SGDStep


class Plain(Backend):
    """Runs wherever PyTorch does."""

    def accumulate(self, total: torch.Tensor, gradient: torch.Tensor, bits: Bits) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        for part, offsets in bits.masked_slices():
            total[part.entries].add_(gradient[part.coordinates].index_select(0, offsets))

    def square_sum(self, values: torch.Tensor, bits: Bits | None) -> torch.Tensor:
        """See :class:`maskreg.train.optim.step.Backend`."""
        total = torch.zeros((), dtype=torch.float64, device=values.device)
        if bits is None:
            chunks = iter(torch.split(values, SLICE_WORDS * PAD_BITS))
        else:
            chunks = (values[part.coordinates].index_select(0, offsets) for part, offsets in bits.masked_slices())
        for chunk in chunks:
            total += chunk.double().square().sum()
        return total

    def adamw(self, operands: Operands, exp_avg: torch.Tensor, exp_avg_sq: torch.Tensor, step: AdamWStep) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        for part, offsets in operands.bits.masked_slices():
            values = _values(operands, part, offsets)
            torch_adamw(
                [values],
                [_gradient(operands.gradient, part, offsets, step.scale)],
                [exp_avg[part.entries]],
                [exp_avg_sq[part.entries]],
                [],
                [torch.tensor(float(step.step - 1))],
                foreach=False,
                amsgrad=False,
                beta1=step.beta1,
                beta2=step.beta2,
                lr=step.lr,
                weight_decay=step.weight_decay,
                eps=step.eps,
                maximize=False,
            )
            _scatter(operands.weights, part, offsets, values)

    def sgd(self, operands: Operands, velocity: torch.Tensor | None, step: SGDStep) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        for part, offsets in operands.bits.masked_slices():
            values = _values(operands, part, offsets)
            torch_sgd(
                [values],
                [_gradient(operands.gradient, part, offsets, step.scale)],
                [None if velocity is None else velocity[part.entries]],
                foreach=False,
                weight_decay=step.weight_decay,
                momentum=step.momentum,
                lr=step.lr,
                dampening=0.0,
                nesterov=step.nesterov,
                maximize=False,
            )
            _scatter(operands.weights, part, offsets, values)


def _values(operands: Operands, part: Slice, offsets: torch.Tensor) -> torch.Tensor:
    """fp32 values to update: gathered weights, or a view of the master copy, with weights that were loaded taken in.

    See :func:`maskreg.train.optim.rounding.take_masters`.
    """
    weights = operands.weights[part.coordinates].index_select(0, offsets)
    if operands.master is None:
        return weights
    master = operands.master[part.entries]
    codes = CODES[weights.element_size()]
    kept = master.to(weights.dtype).view(codes) == weights.view(codes)
    return torch.where(kept, master, weights.float(), out=master)


def _gradient(gradient: Gradient, part: Slice, offsets: torch.Tensor, scale: float) -> torch.Tensor:
    if gradient.packed:
        values = gradient.values[part.entries]
        return values if scale == 1.0 else values * scale
    values = gradient.values[part.coordinates].index_select(0, offsets).float()
    return values if scale == 1.0 else values.mul_(scale)


def _scatter(weights: torch.Tensor, part: Slice, offsets: torch.Tensor, values: torch.Tensor) -> None:
    weights[part.coordinates].scatter_(0, offsets, values.to(weights.dtype))
