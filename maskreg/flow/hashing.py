"""Leaf hashes of what a block becomes, leaf by leaf: a leaf fits a core's cache, and a copy of a block does not."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from maskreg.codec.base import Codes, Movers
from maskreg.codec.movers import swapped
from maskreg.digest import FINGERPRINT_BYTES, LEAF_NUMEL, leaf_hashes
from maskreg.parallel import Buffers

if TYPE_CHECKING:
    from maskreg.digest import LeafHashes

_BUFFERS = Buffers()


def hashes_after(before: Codes, movers: Movers, known: LeafHashes | None = None) -> tuple[LeafHashes, Codes]:
    """Leaf hashes of a block, uint16 ``[n]``, with the movers' codes in it; and the codes that these replace, ``[k]``.

    ``known``: the leaf hashes of the block as it is; without them, leaves in which nothing moves are hashed too.
    """
    count = -(-before.size // LEAF_NUMEL)
    hashes = np.empty((count, FINGERPRINT_BYTES), np.uint8) if known is None else known.copy()
    replaced = np.empty_like(movers.codes)
    # Of the positions' own dtype, else all of them are converted.
    borders = np.searchsorted(movers.positions, np.arange(count + 1, dtype=np.uint32) * np.uint32(LEAF_NUMEL))
    for number, (first, last) in enumerate(itertools.pairwise(borders.tolist())):
        leaf = before[number * LEAF_NUMEL : (number + 1) * LEAF_NUMEL]
        if first < last:
            own, leaf = leaf, _BUFFERS.array("leaf", leaf.size, np.uint16)
            leaf[:] = own
            positions = movers.positions[first:last] - np.uint32(number * LEAF_NUMEL)
            replaced[first:last] = swapped(leaf, Movers(positions, movers.codes[first:last]))
        elif known is not None:
            continue
        hashes[number] = leaf_hashes(leaf)[0]
    return hashes, replaced
