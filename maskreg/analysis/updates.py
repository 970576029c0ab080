"""How far two updates point the same way: cosine, and the share of energy that is orthogonal.

Source: "No Task Vector is an Island", which says of updates o and r of one task how much of o's energy is orthogonal to
r: ``1 - cos^2``, with the whole update as one vector, or summed over tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.analysis.concentration import count_of
from maskreg.analysis.overlap import Sums, ratio
from maskreg.checkpoint.roles import GROUPS
from maskreg.result import plain

# MLP channels that an update moves most, and how many of them two updates have in common.
#
# Source: "No Task Vector is an Island", which gives Jaccard's index of the top 10 % of MLP channels by squared update.
# A channel is taken to be one intermediate neuron with all of its weights: its row of ``gate_proj`` and ``up_proj``
# (``fc1``, ``w1``, ``w3``) and its column of ``down_proj`` (``fc2``, ``w2``).

TOP_CHANNELS = 0.1
"""Share of an MLP's channels that is compared."""

BY_ROW = frozenset({"gate_proj", "up_proj", "fc1", "w1", "w3"})
BY_COLUMN = frozenset({"down_proj", "fc2", "w2"})
"""Names of matrices that have a row, or a column, for each channel."""

Floats = npt.NDArray[np.float64]


def mlp_of(name: str, shape: Sequence[int]) -> tuple[str, int] | None:
    """The MLP that a matrix belongs to, and the axis along which its channels lie; None for other tensors.

    Example: ``model.layers.3.mlp.down_proj.weight`` belongs to ``model.layers.3.mlp``, axis 1.
    """
    parts = name.removesuffix(".weight").rpartition(".")
    if len(shape) != 2 or not name.endswith(".weight") or parts[2] not in BY_ROW | BY_COLUMN:
        return None
    return parts[0], int(parts[2] in BY_COLUMN)


@dataclass(frozen=True)
class ChannelOverlap:
    """What two updates have in common of the channels that each moves most, over the MLPs of a model.

    ``jaccard`` is the mean over MLPs of Jaccard's index, ``expected`` its mean for random sets of that
    size. MLPs that an update leaves as they were are left out.
    """

    jaccard: float | None
    expected: float | None
    mlps: int
    by_mlp: Mapping[str, float]
    left_out: tuple[str, ...]


def channel_overlap(a: Mapping[str, Floats], b: Mapping[str, Floats]) -> ChannelOverlap:
    """Compare the ``ceil(TOP_CHANNELS * channels)`` most moved channels of every MLP; ties go to the lower index.

    Given is by MLP the squared update of each channel, float64 ``[channels]``.
    """
    kept = [name for name in a if a[name].any() and b[name].any()]
    by_mlp = {name: _jaccard(a[name], b[name]) for name in kept}
    by_size = {size: expected_jaccard(size, count_of(TOP_CHANNELS, size)) for size in {a[name].size for name in kept}}
    expected = [by_size[a[name].size] for name in kept]
    return ChannelOverlap(
        fmean(by_mlp.values()) if kept else None,
        fmean(expected) if kept else None,
        len(kept),
        by_mlp,
        tuple(name for name in a if name not in by_mlp),
    )


def expected_jaccard(size: int, count: int) -> float:
    """Expectation of ``|A and B| / |A or B|`` for random sets of ``count`` out of ``size``: i is hypergeometric."""
    if not 0 < count <= size:
        return 0.0
    shared = range(max(0, 2 * count - size), count + 1)
    whole = _log_choose(size, count)
    chances = (math.exp(_log_choose(count, i) + _log_choose(size - count, count - i) - whole) for i in shared)
    return math.fsum(i / (2 * count - i) * chance for i, chance in zip(shared, chances, strict=True))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _jaccard(a: Floats, b: Floats) -> float:
    count = count_of(TOP_CHANNELS, a.size)
    tops = [set(np.argsort(-energies, kind="stable")[:count].tolist()) for energies in (a, b)]
    return ratio(len(tops[0] & tops[1]), len(tops[0] | tops[1])) or 0.0


@dataclass(frozen=True)
class Products(Sums):
    """Sums over the coordinates of two updates: of a b, a^2, b^2 and a^2 b^2.

    Coordinates of which a number is NaN or infinite are left out.
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
    """Two updates of one source: over all tensors, by group, and what they share of the most moved MLP channels."""

    names: tuple[str, str]
    whole: Products
    roles: Mapping[str, Products]
    layers: Mapping[str, Products]
    modules: Mapping[str, Products]
    tensors: Mapping[str, Products]
    channels: ChannelOverlap

    def by(self, kind: str) -> Mapping[str, Products]:
        """The figures of every group of a kind: one of :data:`~maskreg.checkpoint.roles.GROUPS`."""
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
            "channels": plain(self.channels),
        }


def _weighted(rows: Iterable[tuple[float, float | None]]) -> float | None:
    # All of an update is orthogonal to one that is zero.
    weighted = [(energy, 1.0 if share is None else share) for energy, share in rows]
    total = math.fsum(energy for energy, _ in weighted)
    return math.fsum(energy * share for energy, share in weighted) / total if total > 0 else None
