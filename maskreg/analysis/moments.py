"""Figures of Adam's state: how unequal the second moments are, and where the first one points.

Source: "Dense Supervision, Sparse Updates" (arXiv 2606.13657), which gives the coefficient of variation of sqrt(v) and
the cosine between first moment and gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.analysis.overlap import Sums
from maskreg.analysis.updates import cosine_of

Floats = npt.NDArray[np.float64]

EPSILON = 1e-8
"""Adam's own constant, for the direction of a step."""


@dataclass(frozen=True)
class MomentSums(Sums):
    """Sums over the coordinates of a weight.

    Attributes:
        numel: coordinates.
        unseen: of them with v = 0: no gradient has reached them.
        root: sum of sqrt(v).
        second: sum of v.
        first: sum of m^2.
        step: sum of s^2 with s = m / (sqrt(v) + epsilon), the direction of Adam's next step.
        gradient, first_gradient: sums of g^2 and of m g; 0 without the gradient.
        update, first_update, step_update: sums of d^2, -m d and -s d with the update d = W1 - W0; 0 without it. Minus,
            because a step goes against m.
    """

    numel: int = 0
    unseen: int = 0
    root: float = 0.0
    second: float = 0.0
    first: float = 0.0
    step: float = 0.0
    gradient: float = 0.0
    first_gradient: float = 0.0
    update: float = 0.0
    first_update: float = 0.0
    step_update: float = 0.0

    @classmethod
    def of(
        cls, second: Floats, first: Floats | None = None, gradient: Floats | None = None, update: Floats | None = None
    ) -> MomentSums:
        """Of one span of a weight; what is not known is None."""
        root = np.sqrt(second)
        unseen = int(np.count_nonzero(second == 0))
        values = {"root": root, "second": second}
        if first is not None:
            step = first / (root + EPSILON)
            values |= {"first": first**2, "step": step**2}
            if gradient is not None:
                values |= {"gradient": gradient**2, "first_gradient": first * gradient}
            if update is not None:
                values |= {"update": update**2, "first_update": -first * update, "step_update": -step * update}
        return cls(second.size, unseen, **{name: float(value.sum()) for name, value in values.items()})

    def figures(self) -> dict[str, float | None]:
        """Every figure by name; None where it is undefined."""
        return {
            "v_spread": self.spread,
            "v_zero": self.unseen / self.numel if self.numel else None,
            "m_gradient": cosine_of(self.first_gradient, self.first, self.gradient),
            "m_update": cosine_of(self.first_update, self.first, self.update),
            "step_update": cosine_of(self.step_update, self.step, self.update),
        }

    @property
    def spread(self) -> float | None:
        """Coefficient of variation of sqrt(v): its standard deviation over its mean; None where all v are 0."""
        if not self.numel or self.root <= 0:
            return None
        mean = self.root / self.numel
        return math.sqrt(max(0.0, self.second / self.numel - mean**2)) / mean


def summarized(rows: list[MomentSums]) -> dict[str, Any]:
    """Figures of several weights: each one's mean over the weights, and over all coordinates as one vector."""
    figures = [row.figures() for row in rows]
    whole = sum(rows, MomentSums()).figures()
    summary: dict[str, Any] = {"weights": len(rows), "numel": sum(row.numel for row in rows), "figures": {}}
    for name, pooled in whole.items():
        values = [value for row in figures if (value := row[name]) is not None]
        summary["figures"][name] = {
            "weights": len(values),
            "mean": math.fsum(values) / len(values) if values else None,
            "pooled": pooled,
        }
    return summary
