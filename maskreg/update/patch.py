"""Patching one block: check what it is applied to, decode, check what came out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from maskreg.tensors.leaves import check_after, check_before

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from maskreg.digest import LeafHashes

    Codes = npt.NDArray[np.uint16]


def patch_block(
    tensor: str,
    start: int,
    context: Codes,
    decode: Callable[[Codes], Codes],
    *,
    before: LeafHashes,
    after: LeafHashes,
) -> Codes:
    """Turn one block of the checkpoint at hand into the same block of the result.

    Args:
        tensor: name, for messages.
        start: first element of the block within the tensor.
        context: uint16 ``[n]``, the block as stored in the checkpoint at hand.
        decode: the codec's decoding of this block.
        before: uint8 ``[k, 16]``, expected leaf hashes of ``context``.
        after: uint8 ``[k, 16]``, expected leaf hashes of the result.

    Returns:
        uint16 ``[n]``, the result's bits.

    Raises:
        WrongCheckpointError: ``context`` is not what the block was made from; nothing was decoded.
        CorruptError: the block does not decode to what was recorded.
    """
    check_before(tensor, start, context, before)
    values = decode(context)
    check_after(tensor, start, values, after)
    return values
