"""Singular value decompositions: exact up to a size, by random range finding above it.

Source of the range finder: N. Halko, P. G. Martinsson, J. A. Tropp, "Finding structure with randomness" (SIAM Review
2011), algorithms 4.4 and 5.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

OVERSAMPLED = 16
"""Directions that the range finder follows beyond those that are kept."""


@dataclass(frozen=True)
class Method:
    """How matrices are decomposed.

    Attributes:
        exact_up_to: smaller sides up to this are decomposed exactly.
        q: directions that are kept above it.
        niter: power iterations above it.
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
    """Singular vectors and values of a matrix ``[m, n]``, in falling order.

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
        found: npt.NDArray[np.float64] = self.s.cpu().numpy()
        return found


def decompose(matrix: torch.Tensor, method: Method) -> Factors:
    """Singular vectors and values of a matrix: all of them, or the ``q`` largest of a large one.

    Args:
        matrix: float64 ``[m, n]`` on any device.
        method: how.
    """
    if method.is_exact(matrix.shape):
        u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
        return Factors(u, s, vh.mT)
    return _randomised(matrix, method)


def singular_values(matrix: torch.Tensor, method: Method) -> npt.NDArray[np.float64]:
    """Singular values alone, on the host: all of them, or the ``q`` largest of a large matrix."""
    if method.is_exact(matrix.shape):
        values: npt.NDArray[np.float64] = torch.linalg.svdvals(matrix).cpu().numpy()
        return values
    return _randomised(matrix, method).values


def _randomised(matrix: torch.Tensor, method: Method) -> Factors:
    wide = min(method.q + OVERSAMPLED, *matrix.shape)
    # Drawn on the host, so that every device follows the same directions.
    generator = torch.Generator().manual_seed(method.seed)
    start = torch.randn(matrix.shape[1], wide, dtype=matrix.dtype, generator=generator).to(matrix.device)
    basis, _ = torch.linalg.qr(matrix @ start)
    for _ in range(method.niter):
        basis, _ = torch.linalg.qr(matrix.mT @ basis)
        basis, _ = torch.linalg.qr(matrix @ basis)
    u, s, vh = torch.linalg.svd(basis.mT @ matrix, full_matrices=False)
    kept = min(method.q, wide)
    return Factors((basis @ u)[:, :kept], s[:kept], vh[:kept].mT)
