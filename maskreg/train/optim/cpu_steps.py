"""Steps on ranges of a mask's words on the CPU.

Masked coordinates are scattered among frozen ones, and arithmetic is fast on contiguous vectors. So a step packs what
is masked, updates it and spreads it again::

    [first, last) = entries of the words [begin, end)               # from the rank index, see bits.py
    slopes = pack(gradient) * scale                                 # or packed[first:last]
    values = pack(weights)
    values = master[first:last] where those are its rounding; the others were loaded
    update values by slopes and state[first:last]
    master[first:last] = values
    spread(values) into the weights                                 # frozen coordinates keep their bits

Example, with words of 4 bits: weights ``a b c d e f g h``, mask ``0110 0001``, rank ``0 2``. Both words have entries
``[0, 3)``; ``pack`` yields ``b c h``, the update turns them into ``b' c' h'``, and ``spread`` leaves
``a b' c' d e f g h'``.

The kernels, native/src/steps.c, do so for a few words at a time, so that what is packed stays in the first-level cache
and memory is read and written once. All arithmetic is fp32 in the order that is written here, without fused
multiply-add: the bits of the results depend on neither processor nor threads, except for NaN payloads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.mask.packed import PAD_BITS
from maskreg.native import Library, library
from maskreg.train.optim.ranges import Range, Ranges
from maskreg.train.optim.step import AdamWFactors

Codes = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]

QUIET_NAN = 0x7FC0
"""Bits of bf16 that any NaN is rounded to."""

_FULL, _HALF, _LOW = np.uint32(16), np.uint32(0x7FFF), np.uint32(1)


def widen(codes: Codes) -> Floats:
    """Values as fp32; the bits of bf16 are its upper half."""
    if codes.itemsize == 4:
        return codes.view(np.float32)
    return (codes.astype(np.uint32) << _FULL).view(np.float32)


def narrow(values: Floats) -> npt.NDArray[np.uint16]:
    """Bits of the nearest bf16, to even on ties.

    Adding 0x7FFF carries into the upper half if the lower half exceeds a tie, 0x8000; adding the upper half's lowest
    bit too carries on the tie itself if that bit is odd. ``0x3F80_8000 -> 0x3F80``, but ``0x3F81_8000 -> 0x3F82``.
    """
    wide = values.view(np.uint32)
    near = (wide + _HALF + (wide >> _FULL & _LOW)) >> _FULL
    return np.where(np.isnan(values), np.uint32(QUIET_NAN), near).astype(np.uint16)


def take_masters(weights: Codes, masters: Floats) -> Floats:
    """fp32 values of weights: their masters, except where a weight is not what its master rounds to.

    A step leaves every weight as the rounding of its master. One that is anything else was written since, by
    ``load_state_dict`` or an average of weights, and counts: with the master ``0x3F80_4000``, the weight ``0x3F80``
    becomes that, but ``0x3F90`` stays ``0x3F90_0000``. Weights of fp32 have no digits to lose, and all stay.

    Args:
        weights: uint16 or uint32 ``[n]``.
        masters: fp32 ``[n]``.
    """
    if weights.itemsize == 4:
        return widen(weights)
    # No weight is the rounding of a NaN.
    kept = (narrow(masters) == weights) & ~np.isnan(masters)
    return np.where(kept, masters.view(np.uint32), widen(weights).view(np.uint32)).view(np.float32)


Words = npt.NDArray[np.uint64]
Ranks = npt.NDArray[np.int32]

_LANES = 32
"""Partial sums of squares, so that additions do not wait for each other."""

_PIECES = 4
"""Parts of a range whose squares are added in turn, because memory is read faster in several streams than in one."""


class TensorCodes(NamedTuple):
    """The tensors of a step, as bits.

    Attributes:
        weights: uint16 (bf16) or uint32 (fp32) ``[numel]``.
        gradient: likewise; empty where the gradient is packed.
        packed: the gradient as fp32 ``[nnz]``; empty where it is dense.
        master: fp32 ``[nnz]``; empty without a master copy, which weights of bf16 have.
        first: fp32 ``[nnz]``, the first moment or the velocity; empty without.
        second: fp32 ``[nnz]``, the second moment; empty without.
    """

    weights: Codes
    gradient: Codes
    packed: Floats
    master: Floats
    first: Floats
    second: Floats


class MaskWords(NamedTuple):
    """A mask with its rank index, see :class:`maskreg.train.optim.bits.Bits`."""

    words: Words
    rank: Ranks
    nnz: int


class SGDNumbers(NamedTuple):
    """The numbers of a step of SGD; ``scale`` multiplies the gradient."""

    scale: np.float32
    decay: np.float32
    momentum: np.float32
    rate: np.float32
    nesterov: bool


class Update(NamedTuple):
    """A step of one tensor; of SGD, with momentum if there is a velocity."""

    tensors: TensorCodes
    mask: MaskWords
    step: AdamWFactors | SGDNumbers


class Values(NamedTuple):
    """Values of one tensor, uint16 (bf16) or uint32 (fp32) ``[numel]``; all of them without a mask."""

    codes: Codes
    mask: MaskWords | None


class _Masked(NamedTuple):
    """What is masked of some words: coordinates, ascending, and the range of their entries."""

    coordinates: npt.NDArray[np.int64]
    entries: slice


def take_steps(updates: Sequence[Update]) -> None:
    """Take a step of each tensor."""
    ranges = Ranges([update.mask.words.size for update in updates])
    if compiled := library():
        structs = compiled.ffi.new("maskreg_update[]", [_update(compiled, update) for update in updates])
        ranges.together(partial(compiled.lib.maskreg_take_steps, _ranges(compiled, ranges), structs))
        return

    def step(own: Range) -> None:
        _step_words(*updates[own.tensor], own.begin, own.end)

    ranges.each(step)


def _step_words(tensors: TensorCodes, mask: MaskWords, step: AdamWFactors | SGDNumbers, begin: int, end: int) -> None:
    own = _masked(mask, begin, end)
    codes = tensors.weights[own.coordinates]
    values = take_masters(codes, tensors.master[own.entries]) if tensors.master.size else widen(codes)
    with np.errstate(all="ignore"):
        slopes = _slopes(tensors, own) * step.scale
        first, second = tensors.first[own.entries], tensors.second[own.entries]
        if isinstance(step, AdamWFactors):
            values = _adamw(values, slopes, first, second, step)
        else:
            values = _sgd(values, slopes, first, step)
    _store(tensors, own, values)


def _adamw(values: Floats, slopes: Floats, first: Floats, second: Floats, step: AdamWFactors) -> Floats:
    first += step.part1 * (slopes - first)
    second[...] = second * step.beta2 + step.part2 * slopes * slopes
    return np.asarray(values * step.keep - step.size * first / (np.sqrt(second) * step.root + step.eps), np.float32)


def _sgd(values: Floats, slopes: Floats, velocity: Floats, step: SGDNumbers) -> Floats:
    if step.decay != 0:
        slopes = slopes + step.decay * values
    if velocity.size:
        velocity[...] = velocity * step.momentum + slopes
        slopes = slopes + step.momentum * velocity if step.nesterov else velocity
    return values - step.rate * slopes


def accumulate(total: Floats, gradient: Codes, mask: MaskWords) -> None:
    """Add masked entries of a dense gradient to ``total``, fp32 ``[nnz]``."""
    ranges = Ranges([mask.words.size])
    if compiled := library():
        lib, bits = compiled.lib, compiled.ffi.new("maskreg_bits *", _bits(compiled, mask))
        pointers = compiled.write(total), compiled.read(gradient), gradient.itemsize
        ranges.each(lambda own: lib.maskreg_accumulate_words(*pointers, bits, own.begin, own.end))
        return

    def add(own: Range) -> None:
        masked = _masked(mask, own.begin, own.end)
        with np.errstate(all="ignore"):
            total[masked.entries] += widen(gradient[masked.coordinates])

    ranges.each(add)


def square_sums(each: Sequence[Values]) -> list[float]:
    """The sum of squares in float64 of each tensor's values: first of each range, in a fixed order, then of those."""
    ranges = Ranges([-(-values.codes.size // PAD_BITS) for values in each])
    sums = np.zeros(len(ranges))
    if compiled := library():
        structs = compiled.ffi.new("maskreg_values[]", [_pointers(compiled, values) for values in each])
        own_ranges = _ranges(compiled, ranges)
        ranges.together(partial(compiled.lib.maskreg_sum_squares, own_ranges, structs, compiled.write(sums)))
    else:
        _sum_squares(each, ranges, sums)
    # In the order of ranges: the same result whichever thread was first.
    return [float(sum(sums[own].tolist())) for own in ranges.numbers()]


def _sum_squares(each: Sequence[Values], ranges: Ranges, sums: npt.NDArray[np.float64]) -> None:
    def square(own: Range) -> None:
        sums[own.number] = _square_words(*each[own.tensor], own.begin, own.end)

    ranges.each(square)


def _square_words(values: Codes, mask: MaskWords | None, begin: int, end: int) -> float:
    own = values[PAD_BITS * begin : PAD_BITS * end].copy()
    if mask is not None:
        set_bits = np.unpackbits(mask.words[begin:end].view(np.uint8), bitorder="little")
        own[set_bits[: own.size] == 0] = 0
    return _sum_of_squares(own)


def _sum_of_squares(values: Codes) -> float:
    """In a fixed order: a coordinate's squares go to one of the lanes, and words of the pieces take turns.

    Nine words ``A`` to ``I``, of which the last may be incomplete, have the pieces ``A B``, ``C D``, ``E F`` and
    ``G H``::

        words      A C E G B D F H I
        lane 0     A[0]² + A[32]² + C[0]² + C[32]² + E[0]² + ... + I[32]²
        lane 1     A[1]² + A[33]² + C[1]² + ...
        sum        lane 0 + lane 1 + ...
    """
    count = -(-values.size // PAD_BITS)
    piece = max(count - 1, 0) // _PIECES
    words = np.zeros((count, PAD_BITS))
    with np.errstate(all="ignore"):
        words.reshape(-1)[: values.size] = np.square(widen(values).astype(np.float64))
        pieces = words[: _PIECES * piece].reshape(_PIECES, piece, PAD_BITS).swapaxes(0, 1)
        rows = np.concatenate([np.zeros(_LANES), pieces.reshape(-1), words[_PIECES * piece :].reshape(-1)])
        # A cumulative sum adds one row after the other, where np.sum might add in pairs.
        return float(np.cumsum(np.cumsum(rows.reshape(-1, _LANES), axis=0)[-1])[-1])


def _masked(mask: MaskWords, begin: int, end: int) -> _Masked:
    octets = mask.words[begin:end].view(np.uint8)
    coordinates = np.flatnonzero(np.unpackbits(octets, bitorder="little")) + PAD_BITS * begin
    first = int(mask.rank[begin]) if begin < end else 0
    return _Masked(coordinates, slice(first, first + coordinates.size))


def _slopes(tensors: TensorCodes, own: _Masked) -> Floats:
    return tensors.packed[own.entries] if tensors.packed.size else widen(tensors.gradient[own.coordinates])


def _store(tensors: TensorCodes, own: _Masked, values: Floats) -> None:
    if tensors.master.size:
        tensors.master[own.entries] = values
    narrowed = narrow(values) if tensors.weights.itemsize == 2 else values.view(np.uint32)
    tensors.weights[own.coordinates] = narrowed


def _ranges(compiled: Library, ranges: Ranges) -> Any:
    """``maskreg_ranges`` of kernels.h; valid as long as the ranges, as are those below as long as the arrays."""
    pointers = compiled.read(ranges.ends), compiled.write(ranges.taken)
    return compiled.ffi.new("maskreg_ranges *", (ranges.ends.size, ranges.size, *pointers))


def _update(compiled: Library, update: Update) -> tuple[Any, ...]:
    """``maskreg_update`` of kernels.h."""
    tensors, mask, step = update
    numbers = step._asdict()
    numbers.pop("nesterov", None)
    return _rule(compiled, tensors, step), numbers, _tensors(compiled, tensors), _bits(compiled, mask)


def _pointers(compiled: Library, values: Values) -> tuple[Any, ...]:
    """``maskreg_values`` of kernels.h."""
    codes, mask = values
    bits = (0, 0, compiled.ffi.NULL, compiled.ffi.NULL) if mask is None else _bits(compiled, mask)
    return compiled.read(codes), codes.itemsize, codes.size, bits


def _bits(compiled: Library, mask: MaskWords) -> tuple[Any, ...]:
    """``maskreg_bits`` of kernels.h."""
    return mask.words.size, mask.nnz, compiled.read(mask.words), compiled.read(mask.rank)


def _tensors(compiled: Library, tensors: TensorCodes) -> tuple[Any, ...]:
    """``maskreg_tensors`` of kernels.h."""
    weights, gradient, packed, *state = tensors
    pointers = [compiled.write(array) if array.size else compiled.ffi.NULL for array in (weights, *state)]
    read = [compiled.read(array) if array.size else compiled.ffi.NULL for array in (gradient, packed)]
    return weights.itemsize, gradient.itemsize, pointers[0], *read, *pointers[1:]


def _rule(compiled: Library, tensors: TensorCodes, step: AdamWFactors | SGDNumbers) -> Any:
    """A rule of kernels.h."""
    lib = compiled.lib
    if isinstance(step, AdamWFactors):
        return lib.MASKREG_ADAMW
    if not tensors.first.size:
        return lib.MASKREG_SGD
    return lib.MASKREG_NESTEROV if step.nesterov else lib.MASKREG_MOMENTUM
