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
and memory is read and written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.mask.packed import PAD_BITS
from maskreg.native import Library, library
from maskreg.train.optim.ranges import Ranges
from maskreg.train.optim.step import AdamWFactors

Codes = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]

Words = npt.NDArray[np.uint64]
Ranks = npt.NDArray[np.int32]


class TensorCodes(NamedTuple):
    """The tensors of a step, as bits.

    Attributes:
        weights: uint16 (bf16) or uint32 (fp32) ``[numel]``.
        gradient: likewise; empty where the gradient is packed.
        packed: the gradient as fp32 ``[nnz]``; empty where it is dense.
        master: fp32 ``[nnz]``; empty without a master copy, which weights of bf16 have.
        first: fp32 ``[nnz]``, the first moment.
        second: fp32 ``[nnz]``, the second moment.
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


class Update(NamedTuple):
    """A step of one tensor."""

    tensors: TensorCodes
    mask: MaskWords
    step: AdamWFactors


class Values(NamedTuple):
    """Values of one tensor, uint16 (bf16) or uint32 (fp32) ``[numel]``; all of them without a mask."""

    codes: Codes
    mask: MaskWords | None


def take_steps(updates: Sequence[Update]) -> None:
    """Take a step of each tensor."""
    ranges, kernels = Ranges([update.mask.words.size for update in updates]), library()
    structs = kernels.ffi.new("maskreg_update[]", [_update(kernels, update) for update in updates])
    ranges.together(partial(kernels.lib.maskreg_take_steps, _ranges(kernels, ranges), structs))


def accumulate(total: Floats, gradient: Codes, mask: MaskWords) -> None:
    """Add masked entries of a dense gradient to ``total``, fp32 ``[nnz]``."""
    kernels = library()
    bits = kernels.ffi.new("maskreg_bits *", _bits(kernels, mask))
    pointers = kernels.write(total), kernels.read(gradient), gradient.itemsize
    Ranges([mask.words.size]).each(lambda begin, end: kernels.lib.maskreg_accumulate_words(*pointers, bits, begin, end))


def square_sums(each: Sequence[Values]) -> list[float]:
    """The sum of squares in float64 of each tensor's values: first of each range, in a fixed order, then of those."""
    ranges, kernels = Ranges([-(-values.codes.size // PAD_BITS) for values in each]), library()
    sums = np.zeros(len(ranges))
    structs = kernels.ffi.new("maskreg_values[]", [_pointers(kernels, values) for values in each])
    ranges.together(partial(kernels.lib.maskreg_sum_squares, _ranges(kernels, ranges), structs, kernels.write(sums)))
    # In the order of ranges: the same result whichever thread was first.
    return [float(sum(sums[own].tolist())) for own in ranges.numbers()]


def _ranges(compiled: Library, ranges: Ranges) -> Any:
    """``maskreg_ranges`` of kernels.h; valid as long as the ranges, as are those below as long as the arrays."""
    pointers = compiled.read(ranges.ends), compiled.write(ranges.taken)
    return compiled.ffi.new("maskreg_ranges *", (ranges.ends.size, ranges.size, *pointers))


def _update(compiled: Library, update: Update) -> tuple[Any, ...]:
    """``maskreg_update`` of kernels.h."""
    tensors, mask, step = update
    return step._asdict(), _tensors(compiled, tensors), _bits(compiled, mask)


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
