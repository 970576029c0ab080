"""Many masks at once: how many coordinates are in exactly k of them, beside independent masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Consensus:
    """Coordinates by how many masks they are in.

    Attributes:
        observed: in exactly 0, 1, ... n of n masks.
        expected: the same for masks that are independent within every tensor.
    """

    observed: tuple[int, ...]
    expected: tuple[float, ...]

    def to_json(self) -> list[dict[str, Any]]:
        """A row for each k."""
        pairs = enumerate(zip(self.observed, self.expected, strict=True))
        return [{"masks": k, "coordinates": seen, "expected": chance} for k, (seen, chance) in pairs]


def independent(numel: int, nnz: Sequence[int]) -> npt.NDArray[np.float64]:
    """How many coordinates of a tensor would be in exactly k of so many independent masks: Poisson binomial.

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
