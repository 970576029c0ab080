"""Steps on a range of a mask's words on the CPU, in one pass: gathered, updated and scattered a tile at a time.

A tile's entries stay in the first cache between the three. All take the same arguments:

- ``weights``, ``gradient``: uint16 (bits of bf16) or uint32 (of fp32) ``[numel]``; the gradient empty where it is
  packed;
- ``packed``: the gradient as fp32 ``[nnz]``, empty where it is dense;
- ``words``, ``rank``, ``nnz``: of the mask; ``begin``, ``end``: the range;
- state: fp32 ``[nnz]``, empty where there is none.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.jit import kernel
from maskreg.train.optim.tiles import SPARE, Codes, Floats, pack_words, spread_words, widen

_WORDS = 128
"""Of a tile."""

_ROOM = 64 * _WORDS + SPARE

_LANES = 8
"""Sums that do not wait for each other."""

Words = npt.NDArray[np.uint64]
Ranks = npt.NDArray[np.int32]
Numbers = tuple[np.float32, ...]


@kernel
def _scale(values: Floats, by: np.float32) -> None:
    for i in range(values.size):
        values[i] *= by


@kernel
def _copy(source: Floats, target: Floats) -> None:
    # Several times as fast as an assignment, which looks for overlaps and makes a copy first.
    for i in range(source.size):
        target[i] = source[i]


@kernel
def _add(source: Floats, target: Floats) -> None:
    for i in range(source.size):
        target[i] += source[i]


@kernel
def _entries(words: Words, rank: Ranks, nnz: int, at: int, to: int) -> tuple[int, int]:
    """The first entry of words ``[at, to)``, and one past the last."""
    return int(rank[at]), int(rank[to]) if to < words.size else nnz


@kernel
def _slopes(
    gradient: Codes, packed: Floats, words: Words, at: int, to: int, first: int, last: int, scale: np.float32,
    into: Floats,
) -> None:  # fmt: skip
    """The gradient of a tile's entries."""
    count = last - first
    if packed.size:
        _copy(packed[first:last], into[:count])
    else:
        pack_words(gradient, words, at, to, into, count)
    if scale != 1:
        _scale(into[:count], scale)


@kernel
def _adam(values: Floats, slopes: Floats, exp_avg: Floats, exp_avg_sq: Floats, now: Numbers) -> None:
    keep, part1, beta2, part2, root, eps, size = now
    for i in range(values.size):
        slope = slopes[i]
        first = exp_avg[i] + part1 * (slope - exp_avg[i])
        second = exp_avg_sq[i] * beta2 + part2 * slope * slope
        exp_avg[i], exp_avg_sq[i] = first, second
        # NumPy's division does not raise, so that several are done at once; there is one, because it takes longest.
        values[i] = values[i] * keep - np.divide(size * first, np.sqrt(second) * root + eps)


@kernel
def adam_words(
    weights: Codes, gradient: Codes, packed: Floats, words: Words, rank: Ranks, nnz: int, begin: int, end: int,
    exp_avg: Floats, exp_avg_sq: Floats, master: Floats, scale: np.float32, now: Numbers,
) -> None:  # fmt: skip
    """Take a step of AdamW; ``now`` is :meth:`maskreg.train.optim.step.Adam.factors`."""
    slopes, values = np.empty(_ROOM, np.float32), np.empty(_ROOM, np.float32)
    for at in range(begin, end, _WORDS):
        to = min(at + _WORDS, end)
        first, last = _entries(words, rank, nnz, at, to)
        count = last - first
        if count:
            _slopes(gradient, packed, words, at, to, first, last, scale, slopes)
            moments = exp_avg[first:last], exp_avg_sq[first:last]
            if master.size:
                _adam(master[first:last], slopes[:count], *moments, now)
                _copy(master[first:last], values[:count])
            else:
                pack_words(weights, words, at, to, values, count)
                _adam(values[:count], slopes[:count], *moments, now)
            spread_words(weights, words, at, to, values, count)


@kernel
def _sgd(values: Floats, slopes: Floats, velocity: Floats, nesterov: bool, now: Numbers) -> None:
    decay, momentum, rate = now
    if decay != 0:
        for i in range(values.size):
            slopes[i] += decay * values[i]
    if velocity.size and nesterov:
        for i in range(values.size):
            fast = velocity[i] * momentum + slopes[i]
            velocity[i] = fast
            values[i] -= rate * (slopes[i] + momentum * fast)
    elif velocity.size:
        for i in range(values.size):
            fast = velocity[i] * momentum + slopes[i]
            velocity[i] = fast
            values[i] -= rate * fast
    else:
        for i in range(values.size):
            values[i] -= rate * slopes[i]


@kernel
def sgd_words(
    weights: Codes, gradient: Codes, packed: Floats, words: Words, rank: Ranks, nnz: int, begin: int, end: int,
    velocity: Floats, master: Floats, scale: np.float32, nesterov: bool, now: Numbers,
) -> None:  # fmt: skip
    """Take a step of SGD; ``now`` is weight decay, momentum and the rate."""
    slopes, values = np.empty(_ROOM, np.float32), np.empty(_ROOM, np.float32)
    for at in range(begin, end, _WORDS):
        to = min(at + _WORDS, end)
        first, last = _entries(words, rank, nnz, at, to)
        count = last - first
        if count:
            _slopes(gradient, packed, words, at, to, first, last, scale, slopes)
            if master.size:
                _copy(master[first:last], values[:count])
            else:
                pack_words(weights, words, at, to, values, count)
            _sgd(values[:count], slopes[:count], velocity[first : last if velocity.size else first], nesterov, now)
            if master.size:
                _copy(values[:count], master[first:last])
            spread_words(weights, words, at, to, values, count)


@kernel
def accumulate_words(
    into: Floats, gradient: Codes, words: Words, rank: Ranks, nnz: int, begin: int, end: int
) -> None:  # fmt: skip
    """Add masked entries of a dense gradient to fp32 ``[nnz]``."""
    slopes = np.empty(_ROOM, np.float32)
    for at in range(begin, end, _WORDS):
        to = min(at + _WORDS, end)
        first, last = _entries(words, rank, nnz, at, to)
        if last > first:
            pack_words(gradient, words, at, to, slopes, last - first)
            _add(slopes[: last - first], into[first:last])


@kernel
def _add_squares(values: Floats, sums: npt.NDArray[np.float64]) -> None:
    whole = values.size // _LANES * _LANES
    for i in range(0, whole, _LANES):
        for lane in range(_LANES):
            value = np.float64(values[i + lane])
            sums[lane] += value * value
    for i in range(whole, values.size):
        value = np.float64(values[i])
        sums[0] += value * value


@kernel
def square_words(gradient: Codes, words: Words, rank: Ranks, nnz: int, begin: int, end: int) -> float:
    """Sum of the squares of masked entries of a dense gradient, in float64."""
    slopes, sums = np.empty(_ROOM, np.float32), np.zeros(_LANES, np.float64)
    for at in range(begin, end, _WORDS):
        to = min(at + _WORDS, end)
        first, last = _entries(words, rank, nnz, at, to)
        if last > first:
            pack_words(gradient, words, at, to, slopes, last - first)
            _add_squares(slopes[: last - first], sums)
    return float(sums.sum())


@kernel
def squares(values: Codes, begin: int, end: int) -> float:
    """Sum of the squares of values ``[begin, end)``, in float64."""
    floats, sums = np.empty(_ROOM, np.float32), np.zeros(_LANES, np.float64)
    for at in range(begin, end, 64 * _WORDS):
        here = values[at : min(at + 64 * _WORDS, end)]
        widen(here, floats)
        _add_squares(floats[: here.size], sums)
    return float(sums.sum())
