"""How far an update turns the leading directions of a matrix, and how much of it lies in them.

Sources: "On the Geometry of On-Policy Distillation" (GEO, appendix C.3) for principal angles and the shift of the
spectrum; "Dense Supervision, Sparse Updates" (DSSU) for the projection ratio and subspace similarity. Everything is in
float64: a difference of near-equal spectra and the angles of near-equal subspaces need it.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch

from maskreg.analysis.factors import Factors

SHARES = (0.01, 0.05, 0.10, 0.20)
"""Shares of the smaller side whose leading directions the projection ratio looks at."""

SIMILARITY_K = 16
"""Directions of subspace similarity."""


def principal_angles(before: torch.Tensor, after: torch.Tensor) -> npt.NDArray[np.float64]:
    """Angles between two subspaces in radians, rising, float64 ``[k]``.

    Cosines are the singular values of ``before^T after``, clamped to 1. An angle below 45 degrees comes from its sine,
    a singular value of the part of ``after`` outside ``before``: the arccosine would lose half of the digits
    (Bjorck and Golub, "Numerical methods for computing angles between linear subspaces", 1973).

    Args:
        before: float64 ``[n, k]`` with orthonormal columns.
        after: likewise.
    """
    inner = before.mT @ after
    cosines = torch.linalg.svdvals(inner).clamp(max=1.0)
    sines = torch.linalg.svdvals(after - before @ inner).clamp(max=1.0).flip(0)
    angles = torch.where(cosines**2 > 0.5, torch.asin(sines), torch.acos(cosines))
    found: npt.NDArray[np.float64] = angles.cpu().numpy()
    return found


def angle_figures(before: Factors, after: Factors, rank: int, size: int) -> dict[str, float | None]:
    """Mean and largest principal angle in degrees of both sides, and the mean sine of the left.

    None where ``rank`` is not below the smaller side ``size`` (the subspace would be everything) or beyond the
    directions that are known.
    """
    names = [f"angle_{which}_{side}_{rank}" for side in "uv" for which in ("mean", "max")]
    names.append(f"sine_mean_u_{rank}")
    if rank >= size or rank > min(before.s.numel(), after.s.numel()):
        return dict.fromkeys(names)
    left = principal_angles(before.u[:, :rank], after.u[:, :rank])
    right = principal_angles(before.v[:, :rank], after.v[:, :rank])
    found = [math.degrees(float(of)) for angles in (left, right) for of in (angles.mean(), angles.max())]
    return dict(zip(names, [*found, float(np.sin(left).mean())], strict=True))


def spectral_shift(before: npt.NDArray[np.float64], after: npt.NDArray[np.float64]) -> float | None:
    """NSS: ``||sigma(W1) - sigma(W0)||_2 / ||sigma(W0)||_2``, both spectra whole; None for a matrix of zeros."""
    size = float(np.linalg.norm(before))
    return float(np.linalg.norm(after - before)) / size if size > 0 else None


def projection_ratio(factors: Factors, update: torch.Tensor, k: int) -> float | None:
    """``||U_k^T dW V_k||_F^2 / ||dW||_F^2`` with the source's leading directions; None for an update of nothing.

    Args:
        factors: of the source.
        update: float64 ``[m, n]``.
        k: directions of either side.
    """
    energy = float(update.square().sum())
    if energy <= 0:
        return None
    return float((factors.u[:, :k].mT @ update @ factors.v[:, :k]).square().sum()) / energy


def projection_figures(factors: Factors, update: torch.Tensor) -> dict[str, float | None]:
    """The ratio for each of :data:`SHARES`, and that over ``k^2 / (m n)``, what a random update gives."""
    found: dict[str, float | None] = {}
    rows, columns = update.shape
    for share in SHARES:
        k = max(1, int(share * min(rows, columns)))
        ratio = projection_ratio(factors, update, k) if k <= factors.s.numel() else None
        found[f"projection_{share:.2f}"] = ratio
        found[f"projection_lift_{share:.2f}"] = None if ratio is None else ratio * rows * columns / k**2
    return found


def subspace_similarity(one: torch.Tensor, other: torch.Tensor) -> float:
    """``||V_K^T V'_K||_F^2 / K`` of K directions each, float64 ``[n, K]``: 1 for one space, K/n by chance."""
    return float((one.mT @ other).square().sum()) / one.shape[1]
