"""Steps on the CPU in kernels: one pass over weights, gradient and state, on as many threads as PyTorch uses.

Each thread takes ranges of words. The rank index tells which entries of the state belong to a range, so threads never
write to the same place and need no lock.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import torch

from maskreg.mask.packed import PAD_BITS
from maskreg.train.optim.bits import Bits
from maskreg.train.optim.cpu_steps import (
    AdamWNumbers,
    MaskWords,
    OfWords,
    SGDNumbers,
    T,
    TensorCodes,
    accumulate_words,
    square_words,
    step_words,
)
from maskreg.train.optim.rounding import Codes, Floats
from maskreg.train.optim.step import AdamWStep, Operands, SGDStep

DTYPES = (torch.float32, torch.bfloat16)
"""Of weights and of dense gradients."""

_RANGE = 1 << 13
"""Words that a thread takes at once: half a million coordinates, about half a millisecond."""

_EMPTY = np.empty(0, np.float32)


class Cpu:
    """Works on contiguous tensors on the CPU, of :data:`DTYPES`."""

    def accumulate(self, total: torch.Tensor, gradient: torch.Tensor, bits: Bits) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        _in_ranges(bits.words.numel(), accumulate_words(total.numpy(), _codes(gradient), _mask(bits)))

    def square_sum(self, values: torch.Tensor, bits: Bits | None) -> torch.Tensor:
        """See :class:`maskreg.train.optim.step.Backend`."""
        codes = _codes(values)
        parts = _in_ranges(-(-codes.size // PAD_BITS), square_words(codes, None if bits is None else _mask(bits)))
        # Summed in the order of ranges: the same result whichever thread was first.
        return torch.tensor(sum(parts), dtype=torch.float64)

    def adamw(self, operands: Operands, exp_avg: torch.Tensor, exp_avg_sq: torch.Tensor, step: AdamWStep) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        numbers = AdamWNumbers(np.float32(step.scale), *(np.float32(factor) for factor in step.factors()))
        _take_step(_tensors(operands, exp_avg, exp_avg_sq), operands.bits, numbers)

    def sgd(self, operands: Operands, velocity: torch.Tensor | None, step: SGDStep) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        scale, decay, momentum, rate = map(np.float32, (step.scale, step.weight_decay, step.momentum, step.lr))
        numbers = SGDNumbers(scale, decay, momentum, rate, step.nesterov)
        _take_step(_tensors(operands, velocity, None), operands.bits, numbers)


def _codes(values: torch.Tensor) -> Codes:
    """A tensor's memory as unsigned integers, so that no operation can change the bits of a NaN."""
    values = values.detach()
    if values.dtype == torch.bfloat16:
        return values.view(torch.int16).numpy().view(np.uint16)
    return values.numpy().view(np.uint32)


def _tensors(operands: Operands, first: torch.Tensor | None, second: torch.Tensor | None) -> TensorCodes:
    weights, slopes, packed = _codes(operands.weights), operands.gradient.values, operands.gradient.packed
    if (operands.master is None) == (weights.itemsize == 2):
        raise ValueError("weights of bf16 have masters, and those of fp32 have none")
    gradient = (weights[:0], slopes.numpy()) if packed else (_codes(slopes), _EMPTY)
    return TensorCodes(weights, *gradient, *map(_entries, (operands.master, first, second)))


def _take_step(tensors: TensorCodes, bits: Bits, numbers: AdamWNumbers | SGDNumbers) -> None:
    _in_ranges(bits.words.numel(), step_words(tensors, _mask(bits), numbers))


def _entries(state: torch.Tensor | None) -> Floats:
    return _EMPTY if state is None else state.numpy()


def _mask(bits: Bits) -> MaskWords:
    return MaskWords(bits.words.numpy().view(np.uint64), bits.rank.numpy(), bits.nnz)


def _in_ranges(words: int, work: OfWords[T]) -> list[T]:
    """Call ``work`` for every range of words, on this and other threads; returns the results in order."""
    begins = range(0, words, _RANGE)
    pending = iter(begins)
    results: dict[int, T] = {}

    def take() -> None:
        for begin in pending:
            results[begin] = work(begin, min(begin + _RANGE, words))

    threads = min(torch.get_num_threads(), len(begins)) - 1
    futures = [_pool(os.getpid(), threads).submit(take) for _ in range(threads)]
    take()
    for future in futures:
        future.result()
    return [results[begin] for begin in begins]


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads of a process; keyed by its id, because a fork inherits the object but not the threads."""
    return ThreadPoolExecutor(threads, thread_name_prefix=f"maskreg-{process}")
