"""The two checks that make a patch safe, and the decode between them.

A block is a run of one tensor that starts at a leaf. The coder turns a wrong context into silent garbage, so
the leaves of what a block is applied to are compared before it is decoded, and those of the result after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maskreg.digest import LEAF_NUMEL, leaf_hashes
from maskreg.errors import CorruptError, WrongCheckpointError

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.digest import LeafHashes


def leaf_count(numel: int) -> int:
    """Leaves of a tensor, or of a run that starts at one, of ``numel`` elements."""
    return -(-numel // LEAF_NUMEL)


def leaves_between(leaves: LeafHashes, start: int, stop: int) -> LeafHashes:
    """Leaf hashes of elements ``[start, stop)`` of a tensor; ``start`` is a multiple of 2^18.

    Args:
        leaves: uint8 ``[k, 16]``, hashes of all leaves of the tensor.
        start: first element.
        stop: one past the last element: the tensor's end or a multiple of 2^18.
    """
    return leaves[start // LEAF_NUMEL : leaf_count(stop)]


def differing_leaf(values: npt.NDArray[Any], leaves: LeafHashes) -> int | None:
    """First leaf of ``values`` whose hash is not the expected one, or None when all agree.

    Args:
        values: a run that starts at a leaf; any dtype of the stored width.
        leaves: uint8 ``[k, 16]``, expected hashes of exactly that run.
    """
    found = leaf_hashes(values)
    if found.shape != leaves.shape:
        return min(len(found), len(leaves))
    bad = (found != leaves).any(axis=1)
    return int(bad.argmax()) if bad.any() else None


def check_before(tensor: str, start: int, values: npt.NDArray[Any], leaves: LeafHashes) -> None:
    """Check a run of the checkpoint that a block is about to be applied to.

    Args:
        tensor: name, for the message.
        start: first element of the run within the tensor.
        values: the run as stored.
        leaves: uint8 ``[k, 16]``, expected hashes of the run.

    Raises:
        WrongCheckpointError: a leaf differs.
    """
    leaf = differing_leaf(values, leaves)
    if leaf is not None:
        raise WrongCheckpointError(
            tensor, f"elements {_range(start, leaf, values.size)} are not those the artifact was made from"
        )


def check_after(tensor: str, start: int, values: npt.NDArray[Any], leaves: LeafHashes) -> None:
    """Check a run of the result.

    Args:
        tensor: name, for the message.
        start: first element of the run within the tensor.
        values: the run as it would be written.
        leaves: uint8 ``[k, 16]``, expected hashes of the run.

    Raises:
        CorruptError: a leaf differs.
    """
    leaf = differing_leaf(values, leaves)
    if leaf is not None:
        raise CorruptError(
            f"tensor {tensor}", f"elements {_range(start, leaf, values.size)} did not come out as recorded"
        )


def _range(start: int, leaf: int, size: int) -> str:
    first = start + leaf * LEAF_NUMEL
    return f"{first}..{min(start + size, first + LEAF_NUMEL) - 1}"
