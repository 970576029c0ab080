"""Leaf hashes of tensors in memory, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from maskreg.digest import leaf_hashes
from maskreg.tensors.bus import down

if TYPE_CHECKING:
    import torch

    from maskreg.digest import LeafHashes


def leaves_of(spans: Sequence[torch.Tensor]) -> list[LeafHashes]:
    """Hashes of the leaves of each span, which starts at a leaf: uint8 ``[k, 16]`` each.

    Args:
        spans: one-dimensional and contiguous, on one device.
    """
    return [leaf_hashes(down(span, "weights")) for span in spans]
