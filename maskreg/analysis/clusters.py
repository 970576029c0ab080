"""How much the figures of an overlap vary when rows and columns move together: two-way clustered standard errors.

A figure is a smooth function of the 2x2 tables of all classes. Each coordinate changes it by its *influence*, the
figure's derivative by the coordinate's cell. If coordinates of one row, or of one column, can depend on each other in
any way, and others do not, then (Cameron, Gelbach and Miller, J. Bus. Econ. Stat. 29, 2011)::

    variance = sum over rows of (influence of the row)^2 + the same over columns - the same over coordinates

The channels of a model's residual stream are rows of the matrices that write into it and columns of those that read
it. So along that axis a cluster is a channel, with all that it has in all tensors. Along the other axis it is a neuron,
with its row or column in each matrix of its FFN; in tensors that have neither, a row or column of one tensor.

The tensors are fixed: what the clusters of a tensor have in common, another draw of clusters would have too. So sums of
squares are about the mean of the tensor, or of all that the clusters lie in.

Every figure here is built of a few sums over coordinates: their contributions by cell are linear algebra on the counts
of :mod:`maskreg.analysis.grid`, and their covariances add up from tensors to roles, layers and the whole. A figure of a
group then has the variance d' C d, with d its derivatives by the sums and C their covariances in the group. Twice as
many coordinates of every cell change no figure, so its influences sum to zero: that needs the derivative by the number
of coordinates too, else every cluster would seem to deviate by its size.

Example: A and B hold the same 10 rows of 100, whole, and nothing else. There are 1,000 shared coordinates, but only 10
rows that could have been others: the standard error of a choice of 10, about 10 times the independent one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from maskreg.analysis.contingency import CELLS, IN_A, IN_B
from maskreg.analysis.grid import Grid, Lines
from maskreg.analysis.margins import Margins
from maskreg.checkpoint.roles import ALONE, Shared

Floats = npt.NDArray[np.float64]

NUMEL, OBSERVED, SIZE_A, SIZE_B = "numel", "observed", "size-a", "size-b"
"""Sums: all coordinates, those in both masks, in A, and in B."""

CONCORDANT, DISCORDANT = "concordant", "discordant"
"""Sums: both of a Mantel-Haenszel odds ratio over the exponents of each tensor."""

CONCORDANT_TENSOR, DISCORDANT_TENSOR = "concordant-tensor", "discordant-tensor"
"""The same over tensors."""

STRIPED = "row-column-matched"
"""A null: masks with their rates by class, row and column of every matrix, and nothing else in common."""

_BASE = (NUMEL, OBSERVED, SIZE_A, SIZE_B, CONCORDANT, DISCORDANT, CONCORDANT_TENSOR, DISCORDANT_TENSOR)

MAX_CHANNELS = 512
"""Most channels of the residual stream that are clusters of their own; in wider streams, neighbors are one cluster."""


MAX_NEURONS = 128
"""The same of the neurons of an FFN."""

_NONE: Floats = np.zeros((0, 0))


@dataclass(frozen=True, eq=False)
class Spread:
    """Covariances of the sums over a group of tensors, by what can depend on each other.

    Attributes:
        names: of the sums; the other arrays are ``[len(names), len(names)]``.
        rows, columns, coordinates: sums over clusters of the products of their contributions.
        channels: contributions of every channel of the residual stream, float64 ``[channels, len(names)]``, of tensors
            that have it; these have no rows, or no columns. Empty where there is none.
        neurons: the same of every neuron of the FFN that was added last; other neurons are among the rows. So what
            belongs to one FFN has to be added before the next.
        ffn: its name, and how many neurons it has.
    """

    names: tuple[str, ...] = ()
    rows: Floats = field(default_factory=lambda: _NONE)
    columns: Floats = field(default_factory=lambda: _NONE)
    coordinates: Floats = field(default_factory=lambda: _NONE)
    channels: Floats = field(default_factory=lambda: _NONE)
    neurons: Floats = field(default_factory=lambda: _NONE)
    ffn: tuple[str, int] = ("", 0)

    def __add__(self, other: Spread) -> Spread:
        if not self.names or not other.names:
            return self if self.names else other
        assert self.names == other.names
        rows = self.rows + other.rows
        neurons, ffn = (other.neurons, other.ffn) if other.neurons.size else (self.neurons, self.ffn)
        if self.neurons.size and other.neurons.size:
            if self.ffn == other.ffn:
                neurons = self.neurons + other.neurons
            else:
                rows = rows + _products(self.neurons)
        return Spread(
            self.names,
            rows,
            self.columns + other.columns,
            self.coordinates + other.coordinates,
            _sum(self.channels, other.channels),
            neurons,
            ffn,
        )

    @property
    def covariances(self) -> Covariances:
        """Covariances of the whole group."""
        shared = sum((_products(part) for part in (self.channels, self.neurons) if part.size), self.rows + self.columns)
        return Covariances(self.names, np.stack([shared - self.coordinates, self.coordinates]))


@dataclass(frozen=True, eq=False)
class Covariances:
    """Covariances of sums, float64 ``[2, len(names), len(names)]``: by cluster, and of independent coordinates."""

    names: tuple[str, ...]
    both: Floats

    def with_sum(self, name: str, weights: Mapping[str, float]) -> Covariances:
        """The same with one more sum, a weighted sum of these."""
        extend = np.vstack([np.eye(len(self.names)), self._row(weights)])
        return Covariances((*self.names, name), extend @ self.both @ extend.T)

    def sd(self, derivatives: Mapping[str, float]) -> float:
        """Standard error of a figure of the group, given its derivatives by the sums.

        The two-way variance is an estimate. Below half of what independent coordinates would give it is noise.
        """
        d = self._row(derivatives)
        clustered, coordinates = (d @ self.both @ d).tolist()
        return math.sqrt(max(clustered, coordinates / 2, 0.0))

    def _row(self, weights: Mapping[str, float]) -> Floats:
        return np.array([weights.get(name, 0.0) for name in self.names])


def spread_of(
    cells: npt.NDArray[np.int64],
    expected: Mapping[str, Floats],
    strata: npt.NDArray[np.int64],
    grid: Grid | None = None,
    margins: Margins | None = None,
    shared: Shared = ALONE,
) -> Spread:
    """Covariances of the sums over one tensor.

    Args:
        cells: int64 ``[k, 4]``, 2x2 tables by class; of the classes of ``grid`` where there is one.
        expected: by null, float64 that broadcast to ``[k, 4]``: what a coordinate of each cell adds to its expectation.
        strata: int64 ``[k, 4]``, the 2x2 table of each class's exponent.
        grid: the tensor's counts by row and column; None takes coordinates as independent.
        margins: what is added to the expectation of :data:`STRIPED` in every row, and in every column, besides.
        shared: what the tensor's rows or columns have in common with other tensors.
    """
    tables = {**_base_tables(cells, strata), **expected}
    weights, names = np.empty((*cells.shape, len(tables))), tuple(tables)
    for place, table in enumerate(tables.values()):
        weights[..., place] = table
    single = weights.reshape(-1, len(tables)).copy()
    if margins is not None:
        both, number = single[:, names.index(OBSERVED)], names.index(STRIPED)
        single[:, number] = both - np.sqrt(margins.counted_twice) * (both - single[:, number])
    coordinates: Floats = single.T @ (single * cells.reshape(-1, 1))
    if grid is None:
        return Spread(names, coordinates, coordinates, coordinates)
    rows, columns = grid.rows.sums(weights), grid.columns.sums(weights)
    if margins is not None:
        rows[:, number] += margins.by_row
        columns[:, number] += margins.by_column
    return _by_cluster(names, coordinates, {"rows": (grid.rows, rows), "columns": (grid.columns, columns)}, shared)


def _by_cluster(
    names: tuple[str, ...], coordinates: Floats, by_axis: Mapping[str, tuple[Lines, Floats]], shared: Shared
) -> Spread:
    """Covariances from the contributions of both axes, where they are not of clusters that other tensors have too."""
    folded = {
        clusters.axis: _folded(*by_axis[clusters.axis], clusters.width, most)
        for clusters, most in ((shared.channels, MAX_CHANNELS), (shared.neurons, MAX_NEURONS))
        if clusters is not None
    }
    rows, columns = (
        np.zeros_like(coordinates) if axis in folded and folded[axis].size else _products(sums)
        for axis, (_, sums) in by_axis.items()
    )
    by_channel, by_neuron = (_NONE if clusters is None else folded[clusters.axis] for clusters in shared)
    ffn = ("", 0) if shared.neurons is None else (shared.neurons.ffn, shared.neurons.width)
    return Spread(names, rows, columns, coordinates, by_channel, by_neuron, ffn)


def _folded(lines: Lines, sums: Floats, width: int, most: int) -> Floats:
    """Contributions by cluster of lines that repeat so many clusters; nothing where lines were counted together.

    Of more clusters than ``most``, neighbors are one.
    """
    stacked, rest = divmod(len(sums), width)
    if rest or lines.run > 1:
        return _NONE
    run = -(-width // most)
    whole = sums.reshape(stacked, width, -1).sum(0)
    return np.add.reduceat(whole, np.arange(0, width, run))


def _sum(a: Floats, b: Floats) -> Floats:
    return a + b if a.size and b.size else a if a.size else b


def _products(clusters: Floats) -> Floats:
    """Sums of products over clusters about their mean; few understate the variance, as n does for n - 1."""
    count, deviations = len(clusters), clusters - clusters.mean(0)
    products: Floats = deviations.T @ deviations * (count / max(count - 1, 1))
    return products


def _base_tables(cells: npt.NDArray[np.int64], strata: npt.NDArray[np.int64]) -> dict[str, Floats]:
    every, both = np.ones(CELLS), IN_A * IN_B
    tables = (every, both, IN_A, IN_B, *_odds_tables(strata), *_odds_tables(cells.sum(0, keepdims=True)))
    return dict(zip(_BASE, tables, strict=True))


def _odds_tables(cells: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Derivatives of both * neither / n and of A only * B only / n by each cell, float64 ``[k, 4]``."""
    counts = cells.astype(np.float64)
    n = np.maximum(counts.sum(1, keepdims=True), 1)
    other, alike = counts[:, ::-1] / n, np.array([1.0, 0.0, 0.0, 1.0])
    products = counts * counts[:, ::-1] / n**2
    return other * alike - products[:, :1], other * (1 - alike) - products[:, 1:2]
