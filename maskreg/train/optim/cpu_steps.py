"""Steps on a range of a mask's words on the CPU.

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

The kernels, native/src/steps.c, do so for a few words at a time, which stay in the first-level cache, so that memory is
read and written once. All arithmetic is fp32 in the order that is written here, without fused multiply-add: the bits of
the results depend on neither processor nor threads, save those of a NaN.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.mask.packed import PAD_BITS
from maskreg.native import Library, library
from maskreg.train.optim.rounding import Codes, Floats, narrow, take_masters, widen

Words = npt.NDArray[np.uint64]
Ranks = npt.NDArray[np.int32]

_LANES = 8
"""Partial sums of squares, so that additions do not wait for each other."""

_SUM_WORDS = 128
"""Words whose squares are added to the partial sums from the first on."""


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


class _Masked(NamedTuple):
    """What is masked of some words: coordinates, ascending, and the range of their entries."""

    coordinates: npt.NDArray[np.int64]
    entries: slice


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
    if compiled := library():
        compiled.lib.maskreg_adamw_words(
            _tensors(compiled, tensors), _bits(compiled, mask), begin, end,
            *map(compiled.write, moments), compiled.ffi.new("maskreg_adamw *", step),
        )  # fmt: skip
        return
    own = _masked(mask, begin, end)
    slopes, values = _slopes(tensors, own, step.scale), _values(tensors, own)
    first, second = (moment[own.entries] for moment in moments)
    with np.errstate(all="ignore"):
        first += step.part1 * (slopes - first)
        second[...] = second * step.beta2 + step.part2 * slopes * slopes
        values = values * step.keep - step.size * first / (np.sqrt(second) * step.root + step.eps)
    _store(tensors, own, values)


def sgd_words(tensors: TensorCodes, mask: MaskWords, begin: int, end: int, velocity: Floats, step: SGDNumbers) -> None:
    """Take a step of SGD on words ``[begin, end)``; like :func:`adamw_words`, the velocity empty without momentum."""
    if compiled := library():
        state = compiled.write(velocity) if velocity.size else compiled.ffi.NULL
        compiled.lib.maskreg_sgd_words(
            _tensors(compiled, tensors), _bits(compiled, mask), begin, end,
            state, compiled.ffi.new("maskreg_sgd *", step),
        )  # fmt: skip
        return
    own = _masked(mask, begin, end)
    slopes, values = _slopes(tensors, own, step.scale), _values(tensors, own)
    with np.errstate(all="ignore"):
        if step.decay != 0:
            slopes = slopes + step.decay * values
        if velocity.size:
            fast = velocity[own.entries]
            fast[...] = fast * step.momentum + slopes
            slopes = slopes + step.momentum * fast if step.nesterov else fast
        values = values - step.rate * slopes
    _store(tensors, own, values)


def accumulate_words(total: Floats, gradient: Codes, mask: MaskWords, begin: int, end: int) -> None:
    """Add masked entries of a dense gradient to ``total``, fp32 ``[nnz]``."""
    if compiled := library():
        compiled.lib.maskreg_accumulate_words(
            compiled.read(gradient), gradient.itemsize, _bits(compiled, mask), begin, end, compiled.write(total)
        )
        return
    own = _masked(mask, begin, end)
    with np.errstate(all="ignore"):
        total[own.entries] += widen(gradient[own.coordinates])


def square_words(gradient: Codes, mask: MaskWords, begin: int, end: int) -> float:
    """Sum of squares of masked entries of a dense gradient, in float64."""
    if compiled := library():
        total: float = compiled.lib.maskreg_square_words(
            compiled.read(gradient), gradient.itemsize, _bits(compiled, mask), begin, end
        )
        return total
    starts = range(begin, end, _SUM_WORDS)
    owns = (_masked(mask, start, min(start + _SUM_WORDS, end)) for start in starts)
    return _sum_of_squares([gradient[own.coordinates] for own in owns])


def squares(values: Codes, begin: int, end: int) -> float:
    """Sum of squares of values ``[begin, end)``, in float64."""
    if compiled := library():
        total: float = compiled.lib.maskreg_squares(compiled.read(values), values.itemsize, begin, end)
        return total
    return _sum_of_squares([values[begin:end]])


def _sum_of_squares(parts: list[Codes]) -> float:
    """In a fixed order: of each part, as many as take all lanes go there, and the others to the first."""
    lanes = np.zeros((1, _LANES))
    with np.errstate(all="ignore"):
        for part in parts:
            squared = np.square(widen(part).astype(np.float64))
            whole = part.size // _LANES * _LANES
            # A cumulative sum adds one row after the other, where np.sum might add in pairs.
            lanes = np.cumsum(np.concatenate([lanes, squared[:whole].reshape(-1, _LANES)]), axis=0)[-1:]
            lanes[0, 0] = np.cumsum(np.append(lanes[0, 0], squared[whole:]))[-1]
        return float(np.cumsum(lanes[0])[-1])


def _masked(mask: MaskWords, begin: int, end: int) -> _Masked:
    octets = mask.words[begin:end].view(np.uint8)
    coordinates = np.flatnonzero(np.unpackbits(octets, bitorder="little")) + PAD_BITS * begin
    first = int(mask.rank[begin]) if begin < end else 0
    return _Masked(coordinates, slice(first, first + coordinates.size))


def _slopes(tensors: TensorCodes, own: _Masked, scale: np.float32) -> Floats:
    """The scaled gradient."""
    slopes = tensors.packed[own.entries] if tensors.packed.size else widen(tensors.gradient[own.coordinates])
    with np.errstate(all="ignore"):
        return slopes * scale


def _values(tensors: TensorCodes, own: _Masked) -> Floats:
    codes = tensors.weights[own.coordinates]
    return take_masters(codes, tensors.master[own.entries]) if tensors.master.size else widen(codes)


def _store(tensors: TensorCodes, own: _Masked, values: Floats) -> None:
    if tensors.master.size:
        tensors.master[own.entries] = values
    narrowed = narrow(values) if tensors.weights.itemsize == 2 else values.view(np.uint32)
    tensors.weights[own.coordinates] = narrowed


def _bits(compiled: Library, mask: MaskWords) -> Any:
    """``maskreg_bits`` of kernels.h; valid as long as the arrays."""
    words, rank = compiled.read(mask.words), compiled.read(mask.rank)
    return compiled.ffi.new("maskreg_bits *", (mask.words.size, mask.nnz, words, rank))


def _tensors(compiled: Library, tensors: TensorCodes) -> Any:
    """``maskreg_tensors`` of kernels.h; valid as long as the arrays."""
    null = compiled.ffi.NULL
    weights, gradient, packed, master = tensors
    return compiled.ffi.new(
        "maskreg_tensors *",
        {
            "weight_bytes": weights.itemsize,
            "gradient_bytes": gradient.itemsize,
            "weights": compiled.write(weights),
            "gradient": compiled.read(gradient),
            "packed": compiled.read(packed) if packed.size else null,
            "master": compiled.write(master) if master.size else null,
        },
    )
