"""How much the figures of an overlap vary when rows and columns move together: two-way clustered standard errors.

A figure is a smooth function of the 2x2 tables of all classes. Each coordinate changes it by its *influence*, the
figure's derivative by the coordinate's cell. If coordinates of one row, or of one column, may depend on each other in
any way, and others do not, then (Cameron, Gelbach and Miller, J. Bus. Econ. Stat. 29, 2011)::

    variance = sum over rows of (influence of the row)^2 + the same over columns - the same over coordinates

The channels of a model's residual stream are rows of the matrices that write into it and columns of those that read it.
So along that axis a cluster is a channel, with all that it has in all tensors; along the other, a row or column of one
tensor.

Every figure here is built of a few sums over coordinates: their contributions by cell are linear algebra on the counts
of :mod:`maskreg.analysis.grid`, and their covariances add up from tensors to roles, layers and the whole. A figure of a
group then has the variance d' C d, with d its derivatives by the sums and C their covariances in the group. Twice as
many coordinates of every cell change no figure, so its influences sum to zero: that needs the derivative by the number
of coordinates too, else every cluster would seem to deviate by its size.

Example: A and B hold the same 10 rows of 100, whole, and nothing else. There are 1,000 shared coordinates, but only 10
rows that could have been others: the standard error is that of a choice of 10, about 10 times the independent one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from maskreg.analysis.contingency import CELLS, IN_A, IN_B
from maskreg.analysis.grid import Grid
from maskreg.analysis.lines import Lines
from maskreg.analysis.margins import Margins
from maskreg.checkpoint.residual import Channels

Floats = npt.NDArray[np.float64]

NUMEL, OBSERVED, SIZE_A, SIZE_B = "numel", "observed", "size-a", "size-b"
"""Sums: all coordinates, those in both masks, in A, and in B."""

CONCORDANT, DISCORDANT = "concordant", "discordant"
"""Sums: both of a Mantel-Haenszel odds ratio over the exponents of each tensor."""

CONCORDANT_TENSOR, DISCORDANT_TENSOR = "concordant-tensor", "discordant-tensor"
"""The same over tensors."""

_BASE = (NUMEL, OBSERVED, SIZE_A, SIZE_B, CONCORDANT, DISCORDANT, CONCORDANT_TENSOR, DISCORDANT_TENSOR)

MAX_CHANNELS = 512
"""Most channels of the residual stream that are clusters of their own; in wider streams, neighbors are one cluster."""


@dataclass(frozen=True, eq=False)
class Spread:
    """Covariances of the sums over a group of tensors, by what may depend on each other.

    Attributes:
        names: of the sums; the other arrays are ``[len(names), len(names)]``.
        rows, columns, coordinates: sums over clusters of the products of their contributions.
        channels: contributions of every channel of the residual stream, float64 ``[channels, len(names)]``, of tensors
            that have it; these have no rows, or no columns. Empty where there is none.
    """

    names: tuple[str, ...] = ()
    rows: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    columns: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    coordinates: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    channels: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def __add__(self, other: Spread) -> Spread:
        if not self.names or not other.names:
            return self if self.names else other
        assert self.names == other.names
        return Spread(
            self.names,
            self.rows + other.rows,
            self.columns + other.columns,
            self.coordinates + other.coordinates,
            _sum(self.channels, other.channels),
        )

    def with_sum(self, name: str, weights: Mapping[str, float]) -> Spread:
        """The same with one more sum, a weighted sum of these."""
        row = np.array([weights.get(own, 0.0) for own in self.names])
        extend = np.vstack([np.eye(len(self.names)), row])
        rows, columns, coordinates = (extend @ part @ extend.T for part in (self.rows, self.columns, self.coordinates))
        channels = self.channels @ extend.T if self.channels.size else self.channels
        return Spread((*self.names, name), rows, columns, coordinates, channels)

    def sd(self, derivatives: Mapping[str, float]) -> float:
        """Standard error of a figure of the group.

        The two-way variance is an estimate. Below half of what independent coordinates would give it is noise.

        Args:
            derivatives: of the figure by the sums; 0 for those that are left out.
        """
        d = np.array([derivatives.get(name, 0.0) for name in self.names])
        rows, columns, coordinates = (float(d @ part @ d) for part in (self.rows, self.columns, self.coordinates))
        # Every channel has a part in every tensor: what all have in common is no difference between clusters.
        by_channel = self.channels @ d if self.channels.size else np.zeros(1)
        channels = float(_products((by_channel - by_channel.mean())[:, None])[0, 0])
        return float(np.sqrt(max(rows + columns + channels - coordinates, coordinates / 2, 0.0)))


def spread_of(
    cells: npt.NDArray[np.int64],
    expected: Mapping[str, Floats],
    exponents: npt.NDArray[np.int64] | None = None,
    grid: Grid | None = None,
    margins: Mapping[str, Margins] | None = None,
    channels: Channels | None = None,
) -> Spread:
    """Covariances of the sums over one tensor.

    Args:
        cells: int64 ``[k, 4]``, 2x2 tables by class; of the classes of ``grid`` where there is one.
        expected: by null, float64 that broadcast to ``[k, 4]``: what a coordinate of each cell adds to its expectation.
        exponents: int64 ``[k]``, the exponent of each class; None where there is one stratum.
        grid: the tensor's counts by row and column; None takes coordinates as independent.
        margins: by null, what is added to its expectation in every row, and in every column, besides.
        channels: where the tensor has those of the residual stream; None takes its rows and columns as its own.
    """
    tables = {**_base_tables(cells, exponents), **expected}
    contributions = np.stack([np.broadcast_to(table, cells.shape).reshape(-1) for table in tables.values()], axis=1)
    single = contributions.copy()
    for null, added in (margins or {}).items():
        number = list(tables).index(null)
        both = contributions[:, list(tables).index(OBSERVED)]
        single[:, number] = both - np.sqrt(added.counted_twice) * (both - contributions[:, number])
    coordinates: Floats = single.T @ (single * cells.reshape(-1, 1))
    if grid is None:
        return Spread(tuple(tables), coordinates, coordinates, coordinates)
    weights = contributions.reshape(*cells.shape, -1)
    rows, columns = grid.rows.sums(weights), grid.columns.sums(weights)
    for null, added in (margins or {}).items():
        number = list(tables).index(null)
        rows[:, number] += added.by_row
        columns[:, number] += added.by_column
    names, nothing = tuple(tables), np.zeros_like(coordinates)
    if channels is not None:
        in_rows = channels.axis == "rows"
        by_channel = _by_channel(rows, channels, grid.rows) if in_rows else _by_channel(columns, channels, grid.columns)
        if by_channel is not None and in_rows:
            return Spread(names, nothing, _products(columns), coordinates, by_channel)
        if by_channel is not None:
            return Spread(names, _products(rows), nothing, coordinates, by_channel)
    return Spread(names, _products(rows), _products(columns), coordinates)


def _by_channel(sums: Floats, channels: Channels, lines: Lines) -> Floats | None:
    """Contributions by channel of the stream; None where lines were counted together."""
    stacked, rest = divmod(len(sums), channels.width)
    if rest or lines.run > 1:
        return None
    run = -(-channels.width // MAX_CHANNELS)
    whole = sums.reshape(stacked, channels.width, -1).sum(0)
    by_channel: Floats = np.add.reduceat(whole, np.arange(0, channels.width, run))
    return by_channel


def _sum(a: Floats, b: Floats) -> Floats:
    return a + b if a.size and b.size else a if a.size else b


def _products(clusters: Floats) -> Floats:
    # Few clusters understate the variance, as n does for n - 1.
    count = len(clusters)
    return clusters.T @ clusters * (count / max(count - 1, 1))


def _base_tables(cells: npt.NDArray[np.int64], exponents: npt.NDArray[np.int64] | None) -> dict[str, Floats]:
    every, both = np.ones(CELLS), IN_A * IN_B
    whole = cells.sum(0, keepdims=True)
    strata = np.zeros(len(cells), np.int64)
    if exponents is not None:
        strata = np.unique(exponents, return_inverse=True)[1]
    by_exponent = np.zeros((strata.max(initial=0) + 1, CELLS))
    np.add.at(by_exponent, strata, cells)
    concordant, discordant = _odds_tables(by_exponent)
    concordant_tensor, discordant_tensor = _odds_tables(whole.astype(np.float64))
    tables = (every, both, IN_A, IN_B, concordant[strata], discordant[strata], concordant_tensor, discordant_tensor)
    return dict(zip(_BASE, tables, strict=True))


def _odds_tables(cells: Floats) -> tuple[Floats, Floats]:
    """Derivatives of both * neither / n and of A only * B only / n by each cell, float64 ``[k, 4]``."""
    n = np.maximum(cells.sum(1, keepdims=True), 1)
    neither, only_a, only_b, both = (cells[:, [cell]] for cell in range(CELLS))
    zero = np.zeros_like(both)
    concordant = np.hstack([both, zero, zero, neither]) / n - neither * both / n**2
    discordant = np.hstack([zero, only_b, only_a, zero]) / n - only_a * only_b / n**2
    return concordant, discordant
