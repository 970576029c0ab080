"""Leaves: hashes of 2^18 elements each, checked before a block is decoded and after.

The decoder turns a wrong context into silent garbage. So the leaves of the elements that a block applies to are
compared before it is decoded, and the leaves of the result after.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from maskreg.digest import LEAF_NUMEL, LeafHashes, leaf_hashes
from maskreg.errors import CorruptError, WrongCheckpointError


def leaf_count(numel: int) -> int:
    """Number of leaves of ``numel`` elements that start at a leaf."""
    return -(-numel // LEAF_NUMEL)


def leaves_between(leaves: LeafHashes, start: int, stop: int) -> LeafHashes:
    """Leaf hashes of elements ``[start, stop)`` of a tensor, multiples of 2^18, or its end."""
    return leaves[start // LEAF_NUMEL : leaf_count(stop)]


def differing_leaf(values: npt.NDArray[Any], leaves: LeafHashes) -> int | None:
    """First leaf of a span that starts at a leaf whose hash is not the expected one, or None when all agree."""
    return first_difference(leaf_hashes(values), leaves)


def first_difference(actual: LeafHashes, leaves: LeafHashes) -> int | None:
    """First leaf whose hash is not the expected one, or None when all agree; both uint8 ``[k, 16]``."""
    if actual.shape != leaves.shape:
        return min(len(actual), len(leaves))
    differs = (actual != leaves).any(axis=1)
    return int(differs.argmax()) if differs.any() else None


def check_before(tensor: str, start: int, values: npt.NDArray[Any], leaves: LeafHashes) -> None:
    """Check a span of the checkpoint at hand, before a block is applied to it.

    ``leaves``: uint8 ``[k, 16]``, expected hashes of the span.
    """
    leaf = differing_leaf(values, leaves)
    if leaf is not None:
        raise wrong_before(tensor, start, values.size, leaf)


def check_after(tensor: str, start: int, values: npt.NDArray[Any], leaves: LeafHashes) -> None:
    """Check a span of the result. ``leaves``: uint8 ``[k, 16]``, expected hashes of the span."""
    leaf = differing_leaf(values, leaves)
    if leaf is not None:
        raise wrong_after(tensor, start, values.size, leaf)


def wrong_before(tensor: str, start: int, size: int, leaf: int, *, hint: str = "") -> WrongCheckpointError:
    """The error for a leaf of the checkpoint at hand that differs; ``size`` elements from ``start`` were compared."""
    return WrongCheckpointError(
        tensor, f"elements {_range(start, leaf, size)} are not those the artifact was made from", hint=hint
    )


def wrong_after(tensor: str, start: int, size: int, leaf: int) -> CorruptError:
    """The error for a leaf of the result that differs; ``size`` elements from ``start`` were compared."""
    return CorruptError(f"tensor {tensor}", f"elements {_range(start, leaf, size)} did not come out as recorded")


def _range(start: int, leaf: int, size: int) -> str:
    first = start + leaf * LEAF_NUMEL
    return f"{first}..{min(start + size, first + LEAF_NUMEL) - 1}"
