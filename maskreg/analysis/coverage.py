"""Which coordinates of a matrix matter most or weigh least, and how many of them an update moved.

Sources: "Dense Supervision, Sparse Updates" (DSSU), "On the Geometry of On-Policy Distillation" (GEO, appendix C.3).
Every choice is exact: as many coordinates as asked for, ties going to the lower flat index.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from maskreg.analysis.factors import Factors

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Coverage:
    """What a choice of coordinates and an update have in common.

    Attributes:
        covered: ``|M and U| / |U|``; by chance it is the share ``|M| / n``. None when nothing moved.
        updated: ``|M and U| / |M|``; by chance it is the update's density. None for an empty choice.
    """

    covered: float | None
    updated: float | None


def count_of(share: float, numel: int) -> int:
    """Coordinates in a share of a matrix: ``ceil(share * numel)``, at most all."""
    return min(numel, math.ceil(round(share * numel, 6)))


def highest(scores: npt.NDArray[np.float32] | npt.NDArray[np.float64], count: int) -> Bools:
    """The ``count`` coordinates of highest score, bool of the shape of ``scores``."""
    flat = scores.reshape(-1)
    if count >= flat.size or count <= 0:
        return np.full(scores.shape, count > 0)
    edge = np.partition(flat, flat.size - count)[flat.size - count]
    return _filled(flat > edge, flat == edge, count).reshape(scores.shape)


def lowest_magnitudes(codes: npt.NDArray[np.uint16], count: int) -> Bools:
    """The ``count`` coordinates of smallest magnitude, bool of the shape of ``codes``, which are bf16."""
    magnitudes = (codes & np.uint16(0x7FFF)).reshape(-1)
    if count >= magnitudes.size or count <= 0:
        return np.full(codes.shape, count > 0)
    up_to = np.cumsum(np.bincount(magnitudes, minlength=1 << 15))
    edge = int(np.searchsorted(up_to, count))
    return _filled(magnitudes < edge, magnitudes == edge, count).reshape(codes.shape)


def principal_scores(factors: Factors, rank: int, dtype: torch.dtype) -> npt.NDArray[np.float64]:
    """``|U_r S_r V_r^T|``, how large each entry is in the leading part of the source; ``[m, n]`` of ``dtype``."""
    left = (factors.u[:, :rank] * factors.s[:rank]).to(dtype)
    scores: npt.NDArray[np.float64] = (left @ factors.v[:, :rank].mT.to(dtype)).abs_().cpu().numpy()
    return scores


def coverage_of(chosen: Bools, moved: Bools) -> Coverage:
    """How a choice of coordinates and an update overlap; both bool ``[m, n]``."""
    both = int(np.count_nonzero(chosen & moved))
    moves, choices = int(np.count_nonzero(moved)), int(np.count_nonzero(chosen))
    return Coverage(both / moves if moves else None, both / choices if choices else None)


def _filled(sure: Bools, tied: Bools, count: int) -> Bools:
    missing = count - int(np.count_nonzero(sure))
    sure[np.flatnonzero(tied)[:missing]] = True
    return sure
