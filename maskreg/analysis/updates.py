"""How far two updates point the same way: cosine, and the share of energy that is orthogonal.

Source: "No Task Vector is an Island", which says of updates o and r of one task how much of o's energy is orthogonal to
r: ``1 - cos^2``, with the whole update as one vector, or summed over tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.analysis.channels import ChannelOverlap
from maskreg.checkpoint.roles import GROUPS

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Products:
    """Sums over the coordinates of two updates, a and b.

    Attributes:
        numel: coordinates.
        dot: sum of a b.
        energy_a, energy_b: sums of a^2 and of b^2.
        squares: sum of a^2 b^2.
        nonfinite: coordinates that are left out, because a number is NaN or infinite.
    """

    numel: int = 0
    dot: float = 0.0
    energy_a: float = 0.0
    energy_b: float = 0.0
    squares: float = 0.0
    nonfinite: int = 0

    @classmethod
    def of(cls, a: Floats, b: Floats) -> Products:
        """Of the same span of two updates, float64 ``[n]``."""
        finite = np.isfinite(a) & np.isfinite(b)
        left_out = a.size - int(np.count_nonzero(finite))
        if left_out:
            a, b = a[finite], b[finite]
        product = a * b
        return cls(
            finite.size,
            float(product.sum()),
            float(np.square(a).sum()),
            float(np.square(b).sum()),
            float(np.square(product).sum()),
            left_out,
        )

    def __add__(self, other: Products) -> Products:
        return Products(
            self.numel + other.numel,
            self.dot + other.dot,
            self.energy_a + other.energy_a,
            self.energy_b + other.energy_b,
            self.squares + other.squares,
            self.nonfinite + other.nonfinite,
        )

    @property
    def cosine(self) -> float | None:
        """``<a, b> / (|a| |b|)``, -1 to 1; None where an update is zero."""
        return cosine_of(self.dot, self.energy_a, self.energy_b)

    @property
    def cosine_sd(self) -> float | None:
        """Standard deviation of the cosine if signs were random: ``sqrt(sum a^2 b^2) / (|a| |b|)``."""
        norms = math.sqrt(self.energy_a) * math.sqrt(self.energy_b)
        return math.sqrt(self.squares) / norms if norms > 0 else None

    @property
    def orthogonal(self) -> float | None:
        """Share of either update's energy that is orthogonal to the other: ``1 - cos^2``."""
        cosine = self.cosine
        return None if cosine is None else 1 - cosine**2

    def to_json(self) -> dict[str, Any]:
        """Plain values; undefined figures are null."""
        return {
            "numel": self.numel,
            "cosine": self.cosine,
            "cosine_sd": self.cosine_sd,
            "orthogonal": self.orthogonal,
            "energy_a": self.energy_a,
            "energy_b": self.energy_b,
            "nonfinite": self.nonfinite,
        }


def cosine_of(dot: float, energy_a: float, energy_b: float) -> float | None:
    """``dot / sqrt(energy_a energy_b)``, -1 to 1; None where an energy is zero or not finite."""
    norms = math.sqrt(energy_a) * math.sqrt(energy_b)
    return max(-1.0, min(1.0, dot / norms)) if norms > 0 and math.isfinite(norms) else None


@dataclass(frozen=True)
class UpdatePair:
    """Two updates of one source.

    Attributes:
        names: of a and b.
        whole: over all tensors.
        roles, layers, modules, tensors: the same by group.
        channels: what they share of the most moved MLP channels.
    """

    names: tuple[str, str]
    whole: Products
    roles: Mapping[str, Products]
    layers: Mapping[str, Products]
    modules: Mapping[str, Products]
    tensors: Mapping[str, Products]
    channels: ChannelOverlap

    def by(self, kind: str) -> Mapping[str, Products]:
        """The figures of every group.

        Args:
            kind: one of :data:`~maskreg.checkpoint.roles.GROUPS`.
        """
        groups: Mapping[str, Products] = getattr(self, f"{kind}s")
        return groups

    @property
    def orthogonal_by_tensor(self) -> tuple[float | None, float | None]:
        """Shares of a's and of b's energy orthogonal to the other, each tensor as a vector of its own."""
        rows = self.tensors.values()
        return (
            _weighted((row.energy_a, row.orthogonal) for row in rows),
            _weighted((row.energy_b, row.orthogonal) for row in rows),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values; undefined figures are null."""
        groups = {f"{kind}s": self.by(kind) for kind in GROUPS}
        a, b = self.orthogonal_by_tensor
        return {
            "names": list(self.names),
            "whole": {**self.whole.to_json(), "orthogonal_by_tensor_a": a, "orthogonal_by_tensor_b": b},
            **{kind: {name: row.to_json() for name, row in group.items()} for kind, group in groups.items()},
            "channels": self.channels.to_json(),
        }


def _weighted(rows: Iterable[tuple[float, float | None]]) -> float | None:
    # All of an update is orthogonal to one that is zero.
    weighted = [(energy, 1.0 if share is None else share) for energy, share in rows]
    total = math.fsum(energy for energy, _ in weighted)
    return math.fsum(energy * share for energy, share in weighted) / total if total > 0 else None
