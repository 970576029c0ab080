"""Named definitions of principal and low-magnitude masks: every constant, as in its paper or code."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from maskreg.errors import UsageError


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
        aggregation: how the source aggregates matrices.
        ties: how equal scores or magnitudes are ordered.
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
            "baseline of 30 % means alpha .3; its 144 attention matrices are those of --role qkvo",
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
    """The preset of that name.

    Raises:
        UsageError: unknown preset.
    """
    if name not in PRESETS:
        raise UsageError(f"unknown preset {name!r}", hint=f"use one of {', '.join(PRESETS)}")
    return PRESETS[name]
