"""Whether blocks can be decoded on the device that holds a tensor: on a GPU, that takes Triton."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from maskreg.extras import install_command
from maskreg.tensors.bus import on_device

if TYPE_CHECKING:
    import torch

    from maskreg.codec.layout import Layout
    from maskreg.codec.sparse import SparseLayout


class Decoders(NamedTuple):
    """Functions that decode several blocks at once, on their contexts' device.

    Attributes:
        coded: blocks in which every coordinate has a token.
        sparse: blocks in which few coordinates move.
    """

    coded: Callable[[Sequence[torch.Tensor], Sequence[Layout]], list[torch.Tensor]]
    sparse: Callable[[Sequence[torch.Tensor], Sequence[SparseLayout]], list[torch.Tensor]]


def decoders_for(source: torch.Tensor) -> Decoders | None:
    """Functions that decode blocks on this tensor's device; None when they have to be decoded on the CPU.

    The latter includes a GPU without Triton, of which it warns once.
    """
    return _triton_decoders() if on_device(source) else None


@cache
def _triton_decoders() -> Decoders | None:
    # Triton takes a second to import and exists on Linux only; nobody else should notice.
    try:
        from maskreg.codec.triton_decode import decode_layouts
        from maskreg.codec.triton_sparse import decode_sparse_layouts
    except ImportError as error:
        warnings.warn(
            f"blocks are decoded on the CPU, because Triton is not installed ({error}); "
            f"to decode them on the GPU: {install_command('gpu')}",
            stacklevel=4,
        )
        return None
    return Decoders(decode_layouts, decode_sparse_layouts)
