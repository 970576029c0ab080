"""Steps on the CPU, in compiled loops: one pass over weights, gradient and state, by as many threads as PyTorch uses.

Every thread takes ranges of words, whose entries the ranks tell, so no two write to one place.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import numpy.typing as npt
import torch

from maskreg.mask.packed import PAD_BITS
from maskreg.train.optim.bits import Bits
from maskreg.train.optim.cpu_steps import accumulate_words, adam_words, sgd_words, square_words, squares
from maskreg.train.optim.step import Adam, Operands, Sgd
from maskreg.train.optim.tiles import Codes, Floats

DTYPES = (torch.float32, torch.bfloat16)
"""Of weights and of dense gradients."""

_RANGE = 1 << 13
"""Words that a thread takes at once: half a million coordinates, for half a millisecond or so."""

_NONE = np.empty(0, np.float32)

_Work = Callable[[int, int], object]


class Cpu:
    """Works on contiguous tensors on the CPU, of :data:`DTYPES`."""

    def accumulate(self, into: torch.Tensor, gradient: torch.Tensor, bits: Bits) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        sums, codes, mask = into.numpy(), _codes(gradient), _mask(bits)
        _in_ranges(bits.words.numel(), lambda begin, end: accumulate_words(sums, codes, *mask, begin, end))

    def square_sum(self, values: torch.Tensor, bits: Bits | None) -> torch.Tensor:
        """See :class:`maskreg.train.optim.step.Backend`."""
        parts: dict[int, float] = {}
        codes = _codes(values)

        def work(begin: int, end: int) -> None:
            if bits is None:
                parts[begin] = squares(codes, PAD_BITS * begin, min(PAD_BITS * end, codes.size))
            else:
                parts[begin] = square_words(codes, *_mask(bits), begin, end)

        _in_ranges(-(-codes.size // PAD_BITS), work)
        # The same whichever thread was first.
        return torch.tensor(sum(parts[begin] for begin in sorted(parts)), dtype=torch.float64)

    def adamw(self, on: Operands, exp_avg: torch.Tensor, exp_avg_sq: torch.Tensor, now: Adam) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        numbers = tuple(np.float32(number) for number in now.factors())
        sides, mask, scale = _sides(on), _mask(on.bits), np.float32(now.scale)
        state = exp_avg.numpy(), exp_avg_sq.numpy(), _state(on.master)
        _in_ranges(
            on.bits.words.numel(),
            lambda begin, end: adam_words(*sides, *mask, begin, end, *state, scale, numbers),
        )

    def sgd(self, on: Operands, velocity: torch.Tensor | None, now: Sgd) -> None:
        """See :class:`maskreg.train.optim.step.Backend`."""
        numbers = np.float32(now.weight_decay), np.float32(now.momentum), np.float32(now.lr)
        sides, mask, scale = _sides(on), _mask(on.bits), np.float32(now.scale)
        state = _state(velocity), _state(on.master)
        _in_ranges(
            on.bits.words.numel(),
            lambda begin, end: sgd_words(*sides, *mask, begin, end, *state, scale, now.nesterov, numbers),
        )


def _codes(values: torch.Tensor) -> Codes:
    """A tensor's memory, as numbers that say nothing."""
    values = values.detach()
    if values.dtype == torch.bfloat16:
        return values.view(torch.int16).numpy().view(np.uint16)
    return values.numpy().view(np.uint32)


def _sides(on: Operands) -> tuple[Codes, Codes, Floats]:
    """Weights, and the dense and the packed gradient, one of which is empty."""
    codes, slopes = _codes(on.weights), on.gradient.values
    return (codes, codes[:0], slopes.numpy()) if on.gradient.packed else (codes, _codes(slopes), _NONE)


def _state(entries: torch.Tensor | None) -> Floats:
    return _NONE if entries is None else entries.numpy()


def _mask(bits: Bits) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32], int]:
    return bits.words.numpy().view(np.uint64), bits.rank.numpy(), bits.nnz


def _in_ranges(words: int, work: _Work) -> None:
    """Do the work on every range of words, by as many threads as PyTorch uses, this one among them."""
    ranges = range(0, words, _RANGE)
    left = iter(ranges)

    def take() -> None:
        for begin in left:
            work(begin, min(begin + _RANGE, words))

    more = min(torch.get_num_threads(), len(ranges)) - 1
    others = [_pool(os.getpid(), more).submit(take) for _ in range(more)]
    take()
    for other in others:
        other.result()


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads of a process: a fork has none of those of the process that it was forked from."""
    return ThreadPoolExecutor(threads, thread_name_prefix=f"maskreg-{process}")
