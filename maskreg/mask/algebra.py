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

_MAX_MASKS = 65_535
"""Masks that the kernel counts: 16 bits for each coordinate."""


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
    """Coordinates that are in ``k`` or more of the masks, of which there are up to 65,535."""
    if not 1 <= k <= len(masks) <= _MAX_MASKS:
        raise ValueError(f"k must be from 1 to the number of masks: {k} of {len(masks)} masks")
    operands, compiled, result = _words(masks), library(), np.empty(masks[0].size, np.uint8)
    pointers = [compiled.read(words.view(np.uint8)) for words in operands]
    compiled.lib.maskreg_at_least(k, pointers, len(masks), operands[0].size, compiled.write(result))
    return result


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
