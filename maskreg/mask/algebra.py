"""Operations on packed masks of one tensor: and, or, minus, xor, and at least k of n."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt

from maskreg.mask.packed import PAD_BITS, TensorMask, flip, packed_bytes
from maskreg.native import library


class Everything(Mapping[str, TensorMask]):
    """The mask of all coordinates of tensors of these shapes; each tensor's is made on access."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = shapes

    def __getitem__(self, name: str) -> TensorMask:
        shape = self._shapes[name]
        numel = math.prod(shape)
        return TensorMask(name, shape, flip(np.zeros(packed_bytes(numel), np.uint8), numel))

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


Packed = npt.NDArray[np.uint8]
"""As :func:`maskreg.mask.pack` returns it. Padding is zero in every operand, and in every result."""

_Words = npt.NDArray[np.uint64]

_MAX_MASKS = 255
"""Masks that the kernel counts: 8 bits for each coordinate."""


def both(masks: Sequence[Packed]) -> Packed:
    """Coordinates that are in all masks."""
    return _folded(np.bitwise_and, masks)


def either(masks: Sequence[Packed]) -> Packed:
    """Coordinates that are in any mask."""
    return _folded(np.bitwise_or, masks)


def minus(masks: Sequence[Packed]) -> Packed:
    """Coordinates of the first mask that are in no other."""
    first, *rest = _words(masks)
    return (first & ~reduce(np.bitwise_or, rest, np.zeros_like(first))).view(np.uint8)


def odd(masks: Sequence[Packed]) -> Packed:
    """Coordinates that are in an odd number of masks; of two, in exactly one."""
    return _folded(np.bitwise_xor, masks)


def at_least(k: int, masks: Sequence[Packed]) -> Packed:
    """Coordinates that are in ``k`` or more of the masks.

    64 counters side by side, bit-sliced: word i of ``planes`` holds bit i of each counter. A mask is added like a carry
    that ripples upwards (half adders: sum = plane ^ carry, next carry = plane & carry). Then all counters are compared
    with k at once, from the highest bit down: ``more`` where a counter is decided to be above k, ``equal`` where it is
    undecided.

        masks 110, 101, 100 of 3 coordinates: counters 3 1 1, so planes 111 (bit 0) and 100 (bit 1)
        k = 2 = binary 10:   bit 1 of k is 1: equal = 100.   bit 0 is 0: more = equal & 111 = 100.   Result 100.
    """
    if not 1 <= k <= len(masks):
        raise ValueError(f"k must be from 1 to the number of masks: {k} of {len(masks)} masks")
    operands = _words(masks)
    compiled = library()
    if compiled and len(masks) <= _MAX_MASKS:
        pointers = [compiled.read(words.view(np.uint8)) for words in operands]
        result = np.empty(masks[0].size, np.uint8)
        compiled.lib.maskreg_at_least(k, pointers, len(masks), operands[0].size, compiled.write(result))
        return result
    planes: list[_Words] = [np.zeros_like(operands[0]) for _ in range(len(masks).bit_length())]
    for carry in operands:
        for i, plane in enumerate(planes):
            planes[i], carry = plane ^ carry, plane & carry
    more, equal = np.zeros_like(planes[0]), ~np.zeros_like(planes[0])
    for i in reversed(range(len(planes))):
        if k >> i & 1:
            equal &= planes[i]
        else:
            more |= equal & planes[i]
            equal &= ~planes[i]
    return (more | equal).view(np.uint8)


OPERATIONS: Mapping[str, Callable[[Sequence[Packed]], Packed]] = {"and": both, "or": either, "minus": minus, "xor": odd}
"""Operations by the name that commands and manifests use."""

PAIRWISE = frozenset({"minus", "xor"})
"""Operations that take exactly two masks, because their meaning for more is ambiguous; others take any number."""


def _folded(operation: Callable[[_Words, _Words], _Words], masks: Sequence[Packed]) -> Packed:
    return reduce(operation, _words(masks)).view(np.uint8)


def _words(masks: Sequence[Packed]) -> list[_Words]:
    sizes = {mask.size for mask in masks}
    if len(sizes) != 1 or next(iter(sizes)) % (PAD_BITS // 8):
        raise ValueError(f"masks of {sorted(sizes)} bytes are not of one tensor")
    return [np.ascontiguousarray(mask).view(np.uint64) for mask in masks]
