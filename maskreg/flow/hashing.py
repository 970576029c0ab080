"""Leaf hashes of what a block becomes, without a copy of it: a kernel puts movers into what it is about to hash."""

from __future__ import annotations

import numpy as np

from maskreg.codec.base import Codes, Movers
from maskreg.codec.movers import changed, movers_structure
from maskreg.digest import FINGERPRINT_BYTES, LEAF_NUMEL, LeafHashes, leaf_hashes
from maskreg.native import library

_SHORT = 120
"""A leaf of no more elements is hashed in another way."""


def hashes_after(before: Codes, movers: Movers, known: LeafHashes | None = None) -> tuple[LeafHashes, Codes]:
    """Leaf hashes of a block, uint16 ``[n]``, with the movers' codes in it; and the codes that these replace, ``[k]``.

    ``known``: the leaf hashes of the block as it is; without them, leaves in which nothing moves are hashed too.
    """
    if not 0 < before.size % LEAF_NUMEL <= _SHORT:
        compiled = library()
        count = -(-before.size // LEAF_NUMEL)
        hashes = np.empty((count, FINGERPRINT_BYTES), np.uint8) if known is None else known.copy()
        replaced = np.empty_like(movers.codes)
        compiled.lib.maskreg_hash_after(
            compiled.read(before), before.size, movers_structure(compiled, movers), replaced.size, known is not None,
            compiled.write(hashes.reshape(-1)), compiled.write(replaced),
        )  # fmt: skip
        return hashes, replaced
    return leaf_hashes(changed(before, movers)), before[movers.positions]
