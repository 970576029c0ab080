"""Principal and low-magnitude coordinates of a matrix, and how many of them an update moved.

Sources: "Dense Supervision, Sparse Updates" (DSSU), "On the Geometry of On-Policy Distillation" (GEO, appendix C.3).
Every selection has exactly the requested size; ties go to the lower flat index.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from maskreg.analysis.overlap import ratio
from maskreg.errors import UsageError

if TYPE_CHECKING:  # reports name presets where there is no torch
    import torch

    from maskreg.analysis.angles import Factors


@dataclass(frozen=True)
class Preset:
    """One definition of principal and low-magnitude coverage.

    Attributes:
        name: as typed by users.
        alphas: shares of a matrix; a mask has ``ceil(alpha * m * n)`` coordinates.
        rank: leading directions of the principal score; 0 for ``max(1, int(alpha * min(m, n)))``.
        dtype: of the score; the decomposition behind it is float64.
        thresholds: rules for "moved" under which coverage is given.
        roles: roles of the matrices that are included; empty for all.
        max_side: matrices with a larger smaller side are excluded; 0 for no limit.
        aggregation, ties: how the source aggregates matrices, and how equal scores are ordered.
        source: where the constants come from, and what is unknown.
    """

    name: str
    alphas: tuple[float, ...]
    rank: int
    dtype: Literal["float32", "float64"]
    thresholds: tuple[str, ...]
    roles: tuple[str, ...]
    max_side: int
    aggregation: str
    source: str
    ties: str = "lower flat index"

    def rank_for(self, alpha: float, size: int) -> int:
        """Leading directions for a mask of share ``alpha`` in a matrix whose smaller side is ``size``."""
        return min(self.rank, size) if self.rank else max(1, int(alpha * size))

    def applies(self, role: str, size: int) -> bool:
        """Whether matrices of this role and smaller side are included."""
        return (not self.roles or role in self.roles) and (not self.max_side or size <= self.max_side)

    def to_json(self) -> dict[str, Any]:
        """Every constant, for the artifact's lineage recipe."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


EXACT, ABSOLUTE, RELATIVE = "exact", "abs:1e-05", "rel:0.001"

PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            name="dssu",
            alphas=(0.01, 0.05, 0.10, 0.20),
            rank=0,
            dtype="float32",
            thresholds=(EXACT, ABSOLUTE),
            roles=(),
            max_side=4096,
            aggregation="mean, median and update-count-weighted mean over matrices; which one is printed is not said",
            source="Dense Supervision, Sparse Updates (arXiv 2606.13657), its code; the paper's table is alpha .10",
        ),
        Preset(
            name="geo",
            alphas=(0.30, 0.50),
            rank=64,
            dtype="float64",
            thresholds=(RELATIVE,),
            roles=("attention", "ffn"),
            max_side=0,
            aggregation="unweighted mean over matrices",
            source="On the Geometry of On-Policy Distillation, appendix C.3 (alpha .5) and figure 3, whose random "
            "baseline of 30 % means alpha .3; its 144 attention matrices: qkvo",
        ),
        Preset(
            name="small",
            alphas=(0.30,),
            rank=16,
            dtype="float64",
            thresholds=(EXACT,),
            roles=(),
            max_side=0,
            aggregation="update-count-weighted mean over matrices",
            source="maskreg: geo's alpha with a rank that suits matrices of a few hundred rows",
        ),
    )
}


def get_preset(name: str) -> Preset:
    """The preset of that name."""
    if name not in PRESETS:
        raise UsageError(f"unknown preset {name!r}", hint=f"use one of {', '.join(PRESETS)}")
    return PRESETS[name]


Bools = npt.NDArray[np.bool_]


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
    return (left @ factors.v[:, :rank].mT.to(dtype)).abs_().cpu().numpy()


def coverage_of(selected: Bools, moved: Bools) -> float | None:
    """``|M and U| / |U|`` of a selection M and the moved coordinates U, bool ``[m, n]``; None when nothing moved.

    By chance it is the share ``|M| / n``.
    """
    return ratio(int(np.count_nonzero(selected & moved)), int(np.count_nonzero(moved)))


def _filled(selected: Bools, tied: Bools, count: int) -> Bools:
    missing = count - int(np.count_nonzero(selected))
    selected[np.flatnonzero(tied)[:missing]] = True
    return selected
