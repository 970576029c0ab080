"""Steps on the CPU in kernels: one pass over weights, gradient and state, on as many threads as PyTorch uses.

All tensors go to one call of a kernel: between calls, Python finds nothing of what it needs in the caches, because
gigabytes went through them, and threads wait for the last one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from maskreg.train.optim.bits import Bits
from maskreg.train.optim.cpu_steps import (
    AdamWNumbers,
    MaskWords,
    SGDNumbers,
    TensorCodes,
    Update,
    Values,
    accumulate,
    square_sums,
    take_steps,
)
from maskreg.train.optim.rounding import Codes, Floats
from maskreg.train.optim.step import AdamWStep, AdamWUpdate, Backend, Operands, SGDStep, SGDUpdate

DTYPES = (torch.float32, torch.bfloat16)
"""Of weights and of dense gradients."""

_EMPTY = np.empty(0, np.float32)


class Cpu(Backend):
    """Works on contiguous tensors on the CPU, of :data:`DTYPES`."""

    def accumulate(self, total: torch.Tensor, gradient: torch.Tensor, bits: Bits) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        accumulate(total.numpy(), _codes(gradient), _mask(bits))

    def square_sum(self, values: torch.Tensor, bits: Bits | None) -> torch.Tensor:
        """See :class:`maskreg.train.optim.step.Backend`."""
        return self.square_sums([(values, bits)])[0]

    def square_sums(self, each: Sequence[tuple[torch.Tensor, Bits | None]]) -> list[torch.Tensor]:
        """See :class:`maskreg.train.optim.step.Backend`."""
        sums = square_sums([Values(_codes(values), None if bits is None else _mask(bits)) for values, bits in each])
        return [torch.tensor(total, dtype=torch.float64) for total in sums]

    def adamw(self, operands: Operands, exp_avg: torch.Tensor, exp_avg_sq: torch.Tensor, step: AdamWStep) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        self.update([AdamWUpdate(operands, exp_avg, exp_avg_sq, step)])

    def sgd(self, operands: Operands, velocity: torch.Tensor | None, step: SGDStep) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        self.update([SGDUpdate(operands, velocity, step)])

    def update(self, each: Sequence[AdamWUpdate | SGDUpdate]) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        take_steps([_adamw(update) if isinstance(update, AdamWUpdate) else _sgd(update) for update in each])


def _adamw(update: AdamWUpdate) -> Update:
    operands, exp_avg, exp_avg_sq, step = update
    numbers = AdamWNumbers(np.float32(step.scale), *(np.float32(factor) for factor in step.factors()))
    return Update(_tensors(operands, exp_avg, exp_avg_sq), _mask(operands.bits), numbers)


def _sgd(update: SGDUpdate) -> Update:
    operands, velocity, step = update
    scale, decay, momentum, rate = map(np.float32, (step.scale, step.weight_decay, step.momentum, step.lr))
    numbers = SGDNumbers(scale, decay, momentum, rate, step.nesterov)
    return Update(_tensors(operands, velocity, None), _mask(operands.bits), numbers)


def _codes(values: torch.Tensor) -> Codes:
    """A tensor's memory as unsigned integers, so that no operation can change the bits of a NaN."""
    values = values.detach()
    if values.dtype == torch.bfloat16:
        return values.view(torch.int16).numpy().view(np.uint16)
    return values.numpy().view(np.uint32)


def _tensors(operands: Operands, first: torch.Tensor | None, second: torch.Tensor | None) -> TensorCodes:
    weights, slopes, packed = _codes(operands.weights), operands.gradient.values, operands.gradient.packed
    if (operands.master is None) == (weights.itemsize == 2):
        raise ValueError("bf16 weights have masters, fp32 weights have none")
    gradient = (weights[:0], slopes.numpy()) if packed else (_codes(slopes), _EMPTY)
    return TensorCodes(weights, *gradient, *map(_entries, (operands.master, first, second)))


def _entries(state: torch.Tensor | None) -> Floats:
    return _EMPTY if state is None else state.numpy()


def _mask(bits: Bits) -> MaskWords:
    return MaskWords(bits.words.numpy().view(np.uint64), bits.rank.numpy(), bits.nnz)
