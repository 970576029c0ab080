"""How far an update rotates the leading singular directions of a matrix, and how much of it lies in them.

Sources: "On the Geometry of On-Policy Distillation" (GEO; appendix C.3) for principal angles, the shift of the spectrum
and subspace similarity; "Dense Supervision, Sparse Updates" (DSSU) for the projection ratio. Everything is in float64,
because differences of nearly equal spectra and angles between nearly equal subspaces cancel.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch

from maskreg.analysis.factors import Factors

SHARES = (0.01, 0.05, 0.10, 0.20)
"""Shares of the smaller side: the projection ratio uses that many leading directions."""

SIMILARITY_K = 16
"""Directions that subspace similarity compares."""


def principal_angles(before: torch.Tensor, after: torch.Tensor) -> npt.NDArray[np.float64]:
    """Principal angles between two subspaces in radians, ascending, float64 ``[k]``.

    Cosines are the singular values of ``before^T after``, clamped to 1; sines are those of
    ``after - before before^T after``, the part of ``after`` outside ``before``. Angles below 45 degrees come from
    their sine (Bjorck and Golub, "Numerical methods for computing angles between linear subspaces", 1973). Example: an
    angle of 1e-9 has the cosine 1 - 5e-19, which is 1.0 in float64, and the sine 1e-9.

    Args:
        before: float64 ``[n, k]`` with orthonormal columns.
        after: float64 ``[n, k]`` with orthonormal columns.
    """
    inner = before.mT @ after
    cosines = torch.linalg.svdvals(inner).clamp(max=1.0)
    sines = torch.linalg.svdvals(after - before @ inner).clamp(max=1.0).flip(0)
    angles = torch.where(cosines**2 > 0.5, torch.asin(sines), torch.acos(cosines))
    result: npt.NDArray[np.float64] = angles.cpu().numpy()
    return result


def angle_figures(before: Factors, after: Factors, rank: int, size: int) -> dict[str, float | None]:
    """Mean and largest principal angle in degrees, left (u) and right (v), and the mean sine of the left angles.

    None where ``rank`` is not below the smaller side ``size``, since the subspace would be the whole space, or exceeds
    the number of directions that were computed.
    """
    names = [f"angle_{statistic}_{side}_{rank}" for side in "uv" for statistic in ("mean", "max")]
    names.append(f"sine_mean_u_{rank}")
    if rank >= size or rank > min(before.s.numel(), after.s.numel()):
        return dict.fromkeys(names)
    left = principal_angles(before.u[:, :rank], after.u[:, :rank])
    right = principal_angles(before.v[:, :rank], after.v[:, :rank])
    degrees = [math.degrees(float(value)) for angles in (left, right) for value in (angles.mean(), angles.max())]
    return dict(zip(names, [*degrees, float(np.sin(left).mean())], strict=True))


def spectral_shift(before: npt.NDArray[np.float64], after: npt.NDArray[np.float64]) -> float | None:
    """NSS: ``||sigma(W1) - sigma(W0)||_2 / ||sigma(W0)||_2`` of whole spectra; None for a zero matrix."""
    size = float(np.linalg.norm(before))
    return float(np.linalg.norm(after - before)) / size if size > 0 else None


def projection_ratio(factors: Factors, update: torch.Tensor, k: int) -> float | None:
    """``||U_k^T dW V_k||_F^2 / ||dW||_F^2`` with the source's leading directions; None for a zero update.

    Args:
        factors: of the source.
        update: float64 ``[m, n]``.
        k: directions on each side.
    """
    energy = float(update.square().sum())
    if energy <= 0:
        return None
    return float((factors.u[:, :k].mT @ update @ factors.v[:, :k]).square().sum()) / energy


def projection_figures(factors: Factors, update: torch.Tensor) -> dict[str, float | None]:
    """The projection ratio for each of :data:`SHARES`, and its lift over ``k^2 / (m n)``, that of a random update."""
    figures: dict[str, float | None] = {}
    rows, columns = update.shape
    for share in SHARES:
        k = max(1, int(share * min(rows, columns)))
        ratio = projection_ratio(factors, update, k) if k <= factors.s.numel() else None
        figures[f"projection_{share:.2f}"] = ratio
        figures[f"projection_lift_{share:.2f}"] = None if ratio is None else ratio * rows * columns / k**2
    return figures


def subspace_similarity(left: torch.Tensor, right: torch.Tensor) -> float:
    """``||V_K^T V'_K||_F^2 / K`` of two bases, float64 ``[n, K]``: 1 for equal subspaces, K / n by chance."""
    return float((left.mT @ right).square().sum()) / left.shape[1]
