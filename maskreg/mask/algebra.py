"""Operations on the packed bits of one tensor's masks: and, or, minus, xor, and at least k of n."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt

from maskreg.mask.packed import PAD_BITS

Packed = npt.NDArray[np.uint8]
"""As :func:`maskreg.mask.pack` gives it. Padding is zero in every operand, and in every result."""

_Words = npt.NDArray[np.uint64]


def both(masks: Sequence[Packed]) -> Packed:
    """Coordinates that are in all masks."""
    return _folded(np.bitwise_and, masks)


def either(masks: Sequence[Packed]) -> Packed:
    """Coordinates that are in any mask."""
    return _folded(np.bitwise_or, masks)


def minus(masks: Sequence[Packed]) -> Packed:
    """Coordinates of the first mask that are in none of the others."""
    first, *rest = _words(masks)
    return (first & ~reduce(np.bitwise_or, rest, np.zeros_like(first))).view(np.uint8)


def odd(masks: Sequence[Packed]) -> Packed:
    """Coordinates that are in exactly one of two masks; of more, in an odd number of them."""
    return _folded(np.bitwise_xor, masks)


def at_least(k: int, masks: Sequence[Packed]) -> Packed:
    """Coordinates that are in ``k`` or more of the masks.

    Raises:
        ValueError: ``k`` is less than 1 or more than there are masks, or the masks are not of one tensor.
    """
    if not 1 <= k <= len(masks):
        raise ValueError(f"at least {k} of {len(masks)} masks")
    planes: list[_Words] = [np.zeros_like(words) for words in _words(masks[:1]) for _ in range(len(masks).bit_length())]
    # 64 counters side by side: plane i holds bit i of each, and a mask is added as a carry that ripples upwards.
    for carry in _words(masks):
        for place, plane in enumerate(planes):
            planes[place], carry = plane ^ carry, plane & carry
    more, equal = np.zeros_like(planes[0]), ~np.zeros_like(planes[0])
    for place in reversed(range(len(planes))):
        if k >> place & 1:
            equal &= planes[place]
        else:
            more |= equal & planes[place]
            equal &= ~planes[place]
    return (more | equal).view(np.uint8)


OPERATIONS: Mapping[str, Callable[[Sequence[Packed]], Packed]] = {
    "and": both,
    "or": either,
    "minus": minus,
    "xor": odd,
}
"""Operations on two masks, by the word that commands and manifests use; ``and`` and ``or`` take more."""

PAIRWISE = frozenset({"minus", "xor"})
"""Operations that are asked of exactly two masks, since people disagree on what more would mean."""


def _folded(operation: Callable[[_Words, _Words], _Words], masks: Sequence[Packed]) -> Packed:
    return reduce(operation, _words(masks)).view(np.uint8)


def _words(masks: Sequence[Packed]) -> list[_Words]:
    sizes = {mask.size for mask in masks}
    if len(sizes) != 1 or next(iter(sizes)) % (PAD_BITS // 8):
        raise ValueError(f"masks of {sorted(sizes)} bytes are not of one tensor")
    return [np.ascontiguousarray(mask).view(np.uint64) for mask in masks]
