"""The size of an artifact, estimated before it is made."""

from __future__ import annotations

from collections.abc import Iterable

from maskreg.digest import FINGERPRINT_BYTES, LEAF_NUMEL
from maskreg.flow.extract.pairing import Pair, StoredAs

CODED_BYTES_PER_COORDINATE = 0.5
"""Size of a delta of a dense update; sparser updates take less, unrelated checkpoints take more."""


def estimated_bytes(pairs: Iterable[Pair], *, mask_only: bool, reversible: bool) -> int:
    """Bytes that an artifact of these pairs will take; too many rather than too few."""
    directions = 0 if mask_only else 1 + reversible
    total = 0.0
    for pair in pairs:
        total += 2 * FINGERPRINT_BYTES * (pair.numel / LEAF_NUMEL + 1)
        if pair.stored_as.masked:
            total += pair.numel / 8
        if pair.stored_as.coded:
            total += pair.numel * CODED_BYTES_PER_COORDINATE * directions
        elif not mask_only:
            total += pair.target.nbytes if pair.target and pair.stored_as is not StoredAs.REMOVED else 0
            total += pair.source.nbytes if pair.source and reversible else 0
    return int(total)
