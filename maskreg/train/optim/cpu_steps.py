"""Steps on a range of a mask's words on the CPU, compiled: packed, updated and spread again, one tile at a time.

Masked coordinates are scattered among frozen ones, and a loop over single bits runs one lane of the processor. So each
kernel works on tiles of 128 words (8,192 coordinates)::

    for each tile of words [begin, end) with at least one masked coordinate:
        [first, last) = entries of the tile                     # from the rank index, see bits.py
        slopes = pack(gradient of the tile) * scale             # or packed[first:last]
        values = pack(weights of the tile)
        values = master[first:last] where those are its rounding; the others were loaded
        update values by slopes and state[first:last]           # plain loops over contiguous fp32, vectorized
        master[first:last] = values
        spread(values) into the tile's weights                  # frozen coordinates keep their bits

Example, with words of 4 bits: weights ``a b c d e f g h``, mask ``0110 0001``, rank ``0 2``. The tile of both words has
entries ``[0, 3)``; ``pack`` yields ``b c h``, the update turns them into ``b' c' h'``, and ``spread`` leaves
``a b' c' d e f g h'``. What is packed (32 KiB of values, as much of slopes) stays in the first-level cache between the
three passes, so that memory is read and written once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.jit import kernel
from maskreg.train.optim.tiles import SPARE, Codes, Floats, Words, pack_words, spread_words, take_masters, widen

_WORDS = 128
"""Words of a tile."""

_ROOM = 64 * _WORDS + SPARE

_LANES = 8
"""Independent partial sums, so that additions do not wait for each other."""

Ranks = npt.NDArray[np.int32]


class TensorCodes(NamedTuple):
    """The tensors of a step, as bits.

    Attributes:
        weights: uint16 (bf16) or uint32 (fp32) ``[numel]``.
        gradient: likewise; empty where the gradient is packed.
        packed: the gradient as fp32 ``[nnz]``; empty where it is dense.
        master: fp32 ``[nnz]``; empty without a master copy.
    """

    weights: Codes
    gradient: Codes
    packed: Floats
    master: Floats


class MaskWords(NamedTuple):
    """A mask with its rank index, see :class:`maskreg.train.optim.bits.Bits`."""

    words: Words
    rank: Ranks
    nnz: int


class AdamWNumbers(NamedTuple):
    """:class:`maskreg.train.optim.step.AdamWFactors` in fp32, after what multiplies the gradient."""

    scale: np.float32
    keep: np.float32
    part1: np.float32
    beta2: np.float32
    part2: np.float32
    root: np.float32
    eps: np.float32
    size: np.float32


class SGDNumbers(NamedTuple):
    """The numbers of a step of SGD; ``scale`` multiplies the gradient."""

    scale: np.float32
    decay: np.float32
    momentum: np.float32
    rate: np.float32
    nesterov: bool


class _Tile(NamedTuple):
    """Words ``[begin, end)``, which hold entries ``[first, last)``."""

    begin: int
    end: int
    first: int
    last: int


@kernel
def _scale(values: Floats, factor: np.float32) -> None:
    for i in range(values.size):
        values[i] *= factor


@kernel
def _copy(source: Floats, target: Floats) -> None:
    # Several times as fast as an assignment of slices, which checks for overlap and makes a temporary copy.
    for i in range(source.size):
        target[i] = source[i]


@kernel
def _add(source: Floats, target: Floats) -> None:
    for i in range(source.size):
        target[i] += source[i]


@kernel
def _tile(mask: MaskWords, begin: int, end: int) -> _Tile:
    last = int(mask.rank[end]) if end < mask.words.size else mask.nnz
    return _Tile(begin, end, int(mask.rank[begin]), last)


@kernel
def _slopes(tensors: TensorCodes, mask: MaskWords, tile: _Tile, scale: np.float32, out: Floats) -> None:
    """The scaled gradient of a tile's entries."""
    count = tile.last - tile.first
    if tensors.packed.size:
        _copy(tensors.packed[tile.first : tile.last], out[:count])
    else:
        pack_words(tensors.gradient, mask.words, tile.begin, tile.end, out, count)
    if scale != 1:
        _scale(out[:count], scale)


@kernel
def _adamw(values: Floats, slopes: Floats, exp_avg: Floats, exp_avg_sq: Floats, step: AdamWNumbers) -> None:
    """Update entries by the expressions of :class:`maskreg.train.optim.step.AdamWFactors`."""
    keep, part1, beta2, part2 = step.keep, step.part1, step.beta2, step.part2
    root, eps, size = step.root, step.eps, step.size
    for i in range(values.size):
        slope = slopes[i]
        first = exp_avg[i] + part1 * (slope - exp_avg[i])
        second = exp_avg_sq[i] * beta2 + part2 * slope * slope
        exp_avg[i], exp_avg_sq[i] = first, second
        # np.divide does not raise on zeros, unlike `/`, so that it vectorizes; one division, because it is slowest.
        values[i] = values[i] * keep - np.divide(size * first, np.sqrt(second) * root + eps)


@kernel
def adamw_words(
    tensors: TensorCodes, mask: MaskWords, begin: int, end: int, moments: tuple[Floats, Floats], step: AdamWNumbers
) -> None:
    """Take a step of AdamW on words ``[begin, end)``.

    Args:
        tensors: of the whole tensor.
        mask: of the whole tensor.
        begin: first word.
        end: one past the last word.
        moments: fp32 ``[nnz]`` each: first and second.
        step: the numbers.
    """
    slopes, values = np.empty(_ROOM, np.float32), np.empty(_ROOM, np.float32)
    exp_avg, exp_avg_sq = moments
    for at in range(begin, end, _WORDS):
        tile = _tile(mask, at, min(at + _WORDS, end))
        first, last = tile.first, tile.last
        count = last - first
        if count:
            _slopes(tensors, mask, tile, step.scale, slopes)
            pack_words(tensors.weights, mask.words, tile.begin, tile.end, values, count)
            if tensors.master.size:
                take_masters(tensors.weights, values[:count], tensors.master[first:last])
            _adamw(values[:count], slopes[:count], exp_avg[first:last], exp_avg_sq[first:last], step)
            if tensors.master.size:
                _copy(values[:count], tensors.master[first:last])
            spread_words(tensors.weights, mask.words, tile.begin, tile.end, values, count)


@kernel
def _sgd(values: Floats, slopes: Floats, velocity: Floats, step: SGDNumbers) -> None:
    decay, momentum, rate = step.decay, step.momentum, step.rate
    if decay != 0:
        for i in range(values.size):
            slopes[i] += decay * values[i]
    if velocity.size and step.nesterov:
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
def sgd_words(tensors: TensorCodes, mask: MaskWords, begin: int, end: int, velocity: Floats, step: SGDNumbers) -> None:
    """Take a step of SGD on words ``[begin, end)``; like :func:`adamw_words`, the velocity empty without momentum."""
    slopes, values = np.empty(_ROOM, np.float32), np.empty(_ROOM, np.float32)
    for at in range(begin, end, _WORDS):
        tile = _tile(mask, at, min(at + _WORDS, end))
        first, last = tile.first, tile.last
        count = last - first
        if count:
            _slopes(tensors, mask, tile, step.scale, slopes)
            pack_words(tensors.weights, mask.words, tile.begin, tile.end, values, count)
            if tensors.master.size:
                take_masters(tensors.weights, values[:count], tensors.master[first:last])
            _sgd(values[:count], slopes[:count], velocity[first : last if velocity.size else first], step)
            if tensors.master.size:
                _copy(values[:count], tensors.master[first:last])
            spread_words(tensors.weights, mask.words, tile.begin, tile.end, values, count)


@kernel
def accumulate_words(total: Floats, gradient: Codes, mask: MaskWords, begin: int, end: int) -> None:
    """Add masked entries of a dense gradient to ``total``, fp32 ``[nnz]``."""
    slopes = np.empty(_ROOM, np.float32)
    for at in range(begin, end, _WORDS):
        tile = _tile(mask, at, min(at + _WORDS, end))
        count = tile.last - tile.first
        if count:
            pack_words(gradient, mask.words, tile.begin, tile.end, slopes, count)
            _add(slopes[:count], total[tile.first : tile.last])


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
def square_words(gradient: Codes, mask: MaskWords, begin: int, end: int) -> float:
    """Sum of squares of masked entries of a dense gradient, in float64."""
    slopes, sums = np.empty(_ROOM, np.float32), np.zeros(_LANES, np.float64)
    for at in range(begin, end, _WORDS):
        tile = _tile(mask, at, min(at + _WORDS, end))
        count = tile.last - tile.first
        if count:
            pack_words(gradient, mask.words, tile.begin, tile.end, slopes, count)
            _add_squares(slopes[:count], sums)
    return float(sums.sum())


@kernel
def squares(values: Codes, begin: int, end: int) -> float:
    """Sum of squares of values ``[begin, end)``, in float64."""
    floats, sums = np.empty(_ROOM, np.float32), np.zeros(_LANES, np.float64)
    for at in range(begin, end, 64 * _WORDS):
        chunk = values[at : min(at + 64 * _WORDS, end)]
        widen(chunk, floats)
        _add_squares(floats[: chunk.size], sums)
    return float(sums.sum())
