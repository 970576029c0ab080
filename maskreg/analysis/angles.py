"""How far an update rotates the leading singular directions of a matrix, and how much of it lies in them.

Sources: "On the Geometry of On-Policy Distillation" (GEO; appendix C.3) for principal angles, the shift of the spectrum
and subspace similarity; "Dense Supervision, Sparse Updates" (DSSU) for the projection ratio. Everything is in float64,
because differences of nearly equal spectra and angles between nearly equal subspaces cancel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

# Singular value decompositions: exact up to a size, randomized above it.
#
# Source of the randomized one: N. Halko, P. G. Martinsson, J. A. Tropp, "Finding structure with randomness" (SIAM
# Review 2011), algorithms 4.4 and 5.1.

OVERSAMPLED = 16
"""Directions of the range finder beyond those that are kept."""

TOLERANCE = 1e-4
"""Relative residual at which the spectral norm of a matrix that is not decomposed exactly is taken."""

_MOST_STEPS = 200


@dataclass(frozen=True)
class Method:
    """How matrices are decomposed.

    Attributes:
        exact_up_to: matrices whose smaller side is at most this are decomposed exactly.
        q: directions kept of larger ones.
        niter: power iterations for larger ones.
        seed: of the random directions.
    """

    exact_up_to: int = 4096
    q: int = 64
    niter: int = 2
    seed: int = 0

    def is_exact(self, shape: torch.Size | tuple[int, ...]) -> bool:
        """Whether a matrix of this shape is decomposed exactly."""
        return min(shape) <= self.exact_up_to


@dataclass(frozen=True)
class Factors:
    """Singular vectors and values of a matrix ``[m, n]``, in descending order.

    They are float64 ``[m, r]``, ``[r]`` and ``[n, r]``.
    """

    u: torch.Tensor
    s: torch.Tensor
    v: torch.Tensor

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """The singular values, on the host."""
        return self.s.cpu().numpy()


def decompose(matrix: torch.Tensor, method: Method) -> Factors:
    """Singular vectors and values of a matrix, float64 on any device: all, or the ``q`` largest of a large one."""
    if method.is_exact(matrix.shape):
        u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
        return Factors(u, s, vh.mT)
    return _randomized(matrix, method)


def singular_values(matrix: torch.Tensor, method: Method) -> npt.NDArray[np.float64]:
    """Singular values, on the host: all, or the ``q`` largest of a large matrix."""
    if method.is_exact(matrix.shape):
        values: npt.NDArray[np.float64] = torch.linalg.svdvals(matrix).cpu().numpy()
        return values
    factors = _randomized(matrix, method)
    values = factors.values
    values[:1] = spectral_norm(matrix, factors, method)
    return values


def spectral_norm(matrix: torch.Tensor, factors: Factors, method: Method) -> float:
    """``||A||_2``: the largest singular value, by :func:`largest_value` where the decomposition is not exact."""
    value = float(factors.s[0]) if factors.s.numel() else 0.0
    if value <= 0 or method.is_exact(matrix.shape):
        return value
    return max(value, largest_value(matrix, factors.v[:, 0]))


def largest_value(matrix: torch.Tensor, start: torch.Tensor, tolerance: float = TOLERANCE) -> float:
    """The spectral norm ``||A||_2`` by the Lanczos method on A^T A, every step orthogonalized against all before.

    The vectors v_1 ... v_k span start, A^T A start, ..., and A^T A is tridiagonal in them; its largest eigenvalue there
    grows toward A^T A's. It ends when the residual |A^T A x - s^2 x| of that eigenvector is at most ``tolerance`` s^2:
    then a singular value lies within half that relative distance of s. A start near the leading direction, float64
    ``[n]``, makes it the largest.
    """
    basis = (start / torch.linalg.vector_norm(start))[:, None]
    small = np.zeros((_MOST_STEPS + 1, _MOST_STEPS + 1))
    square = 0.0
    for step in range(1, min(_MOST_STEPS, matrix.shape[1]) + 1):
        image = matrix.mT @ (matrix @ basis[:, -1])
        small[step - 1, step - 1] = float(basis[:, -1] @ image)
        for _ in range(2):
            image -= basis @ (basis.mT @ image)
        rest = float(torch.linalg.vector_norm(image))
        values, vectors = np.linalg.eigh(small[:step, :step])
        square = float(values[-1])
        if rest * abs(vectors[-1, -1]) <= tolerance * square:
            break
        small[step - 1, step] = small[step, step - 1] = rest
        basis = torch.cat([basis, (image / rest)[:, None]], dim=1)
    return float(square**0.5)


def _randomized(matrix: torch.Tensor, method: Method) -> Factors:
    # 1. Multiply A by a random matrix: A's large singular directions dominate the result Y.
    # 2. Power iterations Y = A (A^T Y) raise the ratios of singular values to the power 2 niter + 1, which makes them
    #    dominate more; QR after each product keeps small directions from drowning in rounding error.
    # 3. Q, a basis of Y, spans nearly the range of A: A ~ Q (Q^T A), and Q^T A is small enough for an exact SVD.
    # Example: sigma_q / sigma_{q+1} = 1.2 counts as 1.2^5 = 2.5 with two iterations.
    wide = min(method.q + OVERSAMPLED, *matrix.shape)
    # Drawn on the host, so that every device starts from the same directions.
    generator = torch.Generator().manual_seed(method.seed)
    start = torch.randn(matrix.shape[1], wide, dtype=matrix.dtype, generator=generator).to(matrix.device)
    basis, _ = torch.linalg.qr(matrix @ start)
    for _ in range(method.niter):
        basis, _ = torch.linalg.qr(matrix.mT @ basis)
        basis, _ = torch.linalg.qr(matrix @ basis)
    u, s, vh = torch.linalg.svd(basis.mT @ matrix, full_matrices=False)
    kept = min(method.q, wide)
    return Factors((basis @ u)[:, :kept], s[:kept], vh[:kept].mT)


SHARES = (0.01, 0.05, 0.10, 0.20)
"""Shares of the smaller side: the projection ratio uses that many leading directions."""

SIMILARITY_K = 16
"""Directions that subspace similarity compares."""


def principal_angles(before: torch.Tensor, after: torch.Tensor) -> npt.NDArray[np.float64]:
    """Principal angles between two subspaces, float64 ``[n, k]`` with orthonormal columns: radians, ascending, ``[k]``.

    Cosines are the singular values of ``before^T after``, clamped to 1; sines are the singular values of ``after -
    before before^T after``, the part of ``after`` outside ``before``. Angles below 45 degrees come from their sine
    (Bjorck and Golub, "Numerical methods for computing angles between linear subspaces", 1973). Example: an angle of
    1e-9 has the cosine 1 - 5e-19, which is 1.0 in float64, and the sine 1e-9.
    """
    inner = before.mT @ after
    cosines = torch.linalg.svdvals(inner).clamp(max=1.0)
    sines = torch.linalg.svdvals(after - before @ inner).clamp(max=1.0).flip(0)
    angles = torch.where(cosines**2 > 0.5, torch.asin(sines), torch.acos(cosines))
    return angles.cpu().numpy()


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
    """``||U_k^T dW V_k||_F^2 / ||dW||_F^2`` with the source's k leading directions; None for a zero update."""
    energy = float(update.square().sum())
    if energy <= 0:
        return None
    return float((factors.u[:, :k].mT @ update @ factors.v[:, :k]).square().sum()) / energy


def projection_figures(factors: Factors, update: torch.Tensor) -> dict[str, float | None]:
    """The projection ratio for each of :data:`SHARES`, and its lift over the ``k^2 / (m n)`` of a random update."""
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
