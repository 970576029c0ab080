"""Consensus of several masks: coordinates in exactly k of them, against independent masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Consensus:
    """Coordinates by the number of masks that hold them.

    Attributes:
        observed: in exactly 0, 1, ... n of n masks.
        expected: the same for masks that are independent within every tensor.
    """

    observed: tuple[int, ...]
    expected: tuple[float, ...]

    def to_json(self) -> list[dict[str, Any]]:
        """A row for each k."""
        pairs = enumerate(zip(self.observed, self.expected, strict=True))
        return [{"masks": k, "coordinates": n, "expected": expected} for k, (n, expected) in pairs]


def independent(numel: int, nnz: Sequence[int]) -> npt.NDArray[np.float64]:
    """Expected coordinates of a tensor in exactly k of several independent masks.

    The number of masks that hold a coordinate is Poisson binomial. Its distribution is the product of the generating
    functions (1 - p_m) + p_m x, built by one convolution per mask. Example: masks of 4 and 2 of 8 coordinates,
    [1/2, 1/2] * [3/4, 1/4] = [3/8, 4/8, 1/8], so 3, 4 and 1 coordinates.

    Args:
        numel: coordinates of the tensor.
        nnz: of them in each mask.

    Returns:
        float64 ``[len(nnz) + 1]``.
    """
    chances = np.array([1.0])
    for count in nnz:
        p = count / numel if numel else 0.0
        chances = np.convolve(chances, [1 - p, p])
    return chances * numel
