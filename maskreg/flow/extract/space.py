"""Whether the disk has room for an artifact, asked before the first byte of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from maskreg.digest import FINGERPRINT_BYTES, LEAF_NUMEL
from maskreg.disk import free_bytes, nearest_existing
from maskreg.errors import NoSpaceError
from maskreg.flow.extract.pairing import How, Pair

CODED_BYTES_PER_COORDINATE = 0.5
"""What a delta of a dense update takes; anything sparser takes less, unrelated checkpoints take more."""


def estimate(pairs: Iterable[Pair], *, mask_only: bool, reversible: bool) -> int:
    """Bytes that an artifact of these pairs will take, rather too many than too few."""
    directions = 0 if mask_only else 1 + reversible
    total = 0.0
    for pair in pairs:
        total += 2 * FINGERPRINT_BYTES * (pair.numel / LEAF_NUMEL + 1)
        if pair.how.masked:
            total += pair.numel / 8
        if pair.how.coded:
            total += pair.numel * CODED_BYTES_PER_COORDINATE * directions
        elif not mask_only:
            total += pair.target.nbytes if pair.target and pair.how is not How.REMOVED else 0
            total += pair.source.nbytes if pair.source and reversible else 0
    return int(total)


def require_space(root: Path, pairs: Iterable[Pair], *, mask_only: bool, reversible: bool) -> None:
    """Check that an artifact of these pairs fits on the disk of ``root``.

    Raises:
        NoSpaceError: it does not.
    """
    require_bytes(root, estimate(pairs, mask_only=mask_only, reversible=reversible))


def require_bytes(root: Path, needed: int) -> None:
    """Check that an artifact of ``needed`` bytes fits on the disk of ``root``.

    Raises:
        NoSpaceError: it does not.
    """
    available = free_bytes(root)
    if needed > available:
        raise NoSpaceError(
            f"{root}: the artifact may need {needed:,} bytes, and {available:,} are free",
            hint=f"df -h {nearest_existing(root)}; or keep the registry elsewhere with MASKREG_HOME",
        )
