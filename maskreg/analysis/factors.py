"""Singular value decompositions: exact up to a size, randomized above it.

Source of the randomized one: N. Halko, P. G. Martinsson, J. A. Tropp, "Finding structure with randomness" (SIAM Review
2011), algorithms 4.4 and 5.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

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

    Attributes:
        u: float64 ``[m, r]``.
        s: float64 ``[r]``.
        v: float64 ``[n, r]``.
    """

    u: torch.Tensor
    s: torch.Tensor
    v: torch.Tensor

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """The singular values, on the host."""
        values: npt.NDArray[np.float64] = self.s.cpu().numpy()
        return values


def decompose(matrix: torch.Tensor, method: Method) -> Factors:
    """Singular vectors and values of a matrix: all, or the ``q`` largest of a large one.

    Args:
        matrix: float64 ``[m, n]`` on any device.
        method: how.
    """
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
    """``||A||_2``: the largest singular value, by :func:`largest_value` where the decomposition is not exact.

    Args:
        matrix: float64 ``[m, n]``.
        factors: of the matrix, by :func:`decompose`; the first direction is enough.
        method: how it was decomposed.
    """
    value = float(factors.s[0]) if factors.s.numel() else 0.0
    if value <= 0 or method.is_exact(matrix.shape):
        return value
    return max(value, largest_value(matrix, factors.v[:, 0]))


def largest_value(matrix: torch.Tensor, start: torch.Tensor, tolerance: float = TOLERANCE) -> float:
    """The spectral norm ``||A||_2`` by the Lanczos method on A^T A, every step orthogonalized against all before.

    The vectors v_1 ... v_k span start, A^T A start, ..., and A^T A is tridiagonal in them; its largest eigenvalue there
    grows toward that of A^T A. It ends when the residual |A^T A x - s^2 x| of that eigenvector is at most ``tolerance``
    s^2: then a singular value lies within half that relative distance of s. A start near the leading direction makes it
    the largest.

    Args:
        matrix: float64 ``[m, n]``, not zero.
        start: float64 ``[n]``, not orthogonal to the leading direction.
        tolerance: of the residual, relative.
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
