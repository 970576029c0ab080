"""Principal and low-magnitude coordinates of a matrix, and how many of them an update moved.

Sources: "Dense Supervision, Sparse Updates" (DSSU), "On the Geometry of On-Policy Distillation" (GEO, appendix C.3).
Every selection has exactly the requested size; ties go to the lower flat index.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from maskreg.analysis.factors import Factors
from maskreg.analysis.overlap import ratio

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Coverage:
    """Overlap of a selection M with the moved coordinates U.

    Attributes:
        covered: ``|M and U| / |U|``; by chance the share ``|M| / n``. None when nothing moved.
        updated: ``|M and U| / |M|``; by chance the update's density. None for an empty selection.
    """

    covered: float | None
    updated: float | None


def highest(scores: npt.NDArray[np.float32] | npt.NDArray[np.float64], count: int) -> Bools:
    """The ``count`` coordinates of highest score, bool in the shape of ``scores``."""
    flat = scores.reshape(-1)
    if count >= flat.size or count <= 0:
        return np.full(scores.shape, count > 0)
    edge = np.partition(flat, flat.size - count)[flat.size - count]
    return _filled(flat > edge, flat == edge, count).reshape(scores.shape)


def lowest_magnitudes(codes: npt.NDArray[np.uint16], count: int) -> Bools:
    """The ``count`` coordinates of smallest magnitude, bool in the shape of ``codes``, which are bf16.

    Without its sign bit, a bf16 code orders as its magnitude does, so one histogram of 2^15 codes replaces a sort.
    """
    magnitudes = (codes & np.uint16(0x7FFF)).reshape(-1)
    if count >= magnitudes.size or count <= 0:
        return np.full(codes.shape, count > 0)
    up_to = np.cumsum(np.bincount(magnitudes, minlength=1 << 15))
    edge = int(np.searchsorted(up_to, count))
    return _filled(magnitudes < edge, magnitudes == edge, count).reshape(codes.shape)


def principal_scores(factors: Factors, rank: int, dtype: torch.dtype) -> npt.NDArray[np.float64]:
    """``|U_r S_r V_r^T|``: magnitudes of the source's best approximation of rank r; ``[m, n]`` of ``dtype``."""
    left = (factors.u[:, :rank] * factors.s[:rank]).to(dtype)
    scores: npt.NDArray[np.float64] = (left @ factors.v[:, :rank].mT.to(dtype)).abs_().cpu().numpy()
    return scores


def coverage_of(selected: Bools, moved: Bools) -> Coverage:
    """Overlap of a selection and an update; both bool ``[m, n]``."""
    both = int(np.count_nonzero(selected & moved))
    return Coverage(ratio(both, int(np.count_nonzero(moved))), ratio(both, int(np.count_nonzero(selected))))


def _filled(selected: Bools, tied: Bools, count: int) -> Bools:
    missing = count - int(np.count_nonzero(selected))
    selected[np.flatnonzero(tied)[:missing]] = True
    return selected
