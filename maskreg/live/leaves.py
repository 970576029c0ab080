"""Leaf hashes of tensors in memory, on the device that holds them; on a GPU, that takes Triton."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from maskreg.digest import leaf_hashes
from maskreg.tensors.bus import down, on_device

if TYPE_CHECKING:
    import torch

    from maskreg.digest import LeafHashes

    Hash = Callable[[Sequence[torch.Tensor]], list[LeafHashes]]


def leaves_of(spans: Sequence[torch.Tensor]) -> list[LeafHashes]:
    """Hashes of the leaves of each span, which starts at a leaf: uint8 ``[k, 16]`` each.

    Without Triton, the spans of a GPU are copied to the CPU; that blocks are decoded there too is warned of by
    :mod:`maskreg.codec.gpu`.

    Args:
        spans: one-dimensional and contiguous, on one device.
    """
    hash_on_device = _on_device() if spans and on_device(spans[0]) else None
    if hash_on_device is not None:
        return hash_on_device(spans)
    return [leaf_hashes(down(span, "weights")) for span in spans]


@cache
def _on_device() -> Hash | None:
    # Triton takes a second to import and exists on Linux only; nobody else should notice.
    try:
        from maskreg.live.triton_leaves import leaves_on_device
    except ImportError:
        return None
    return leaves_on_device
