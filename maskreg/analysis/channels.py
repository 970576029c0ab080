"""MLP channels that an update moves most, and how many of them two updates have in common.

Source: "No Task Vector is an Island", which gives Jaccard's index of the top 10 % of MLP channels by squared update. A
channel is taken to be one intermediate neuron with all of its weights: its row of ``gate_proj`` and ``up_proj``
(``fc1``, ``w1``, ``w3``) and its column of ``down_proj`` (``fc2``, ``w2``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.analysis.concentration import count_of
from maskreg.analysis.overlap import ratio

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

    Attributes:
        jaccard: mean over MLPs of Jaccard's index of the two sets; None without an MLP that both moved.
        expected: mean over the same MLPs of its expectation for random sets of that size.
        mlps: number of MLPs.
        by_mlp: Jaccard's index of each, by name.
        left_out: MLPs that an update leaves as they were.
    """

    jaccard: float | None
    expected: float | None
    mlps: int
    by_mlp: Mapping[str, float]
    left_out: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "jaccard": self.jaccard,
            "expected": self.expected,
            "mlps": self.mlps,
            "by_mlp": dict(self.by_mlp),
            "left_out": list(self.left_out),
        }


def channel_overlap(a: Mapping[str, Floats], b: Mapping[str, Floats]) -> ChannelOverlap:
    """Compare the ``ceil(TOP_CHANNELS * channels)`` most moved channels of every MLP; ties go to the lower index.

    Args:
        a: by MLP, the squared update of each channel, float64 ``[channels]``.
        b: the same of another update.
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
