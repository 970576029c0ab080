"""Clustered standard errors and the null of rows and columns, against dense formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from maskreg.analysis.evidence import (
    GLOBAL,
    MATCHED,
    STRIPED,
    OverlapFigures,
    OverlapSums,
    figures_of,
    sums_from_classes,
)
from maskreg.analysis.excess import Z95
from maskreg.analysis.grid import Grid, count_grid, shape_of
from maskreg.analysis.margins import margins_of
from maskreg.checkpoint.roles import Channels, Neurons, Shared
from maskreg.mask import pack
from maskreg.mask.rounding import classes_of
from maskreg.native import using
from scripts.calibration.draws import INDEPENDENT, Pair, striped, to_codes
from tests.analysis import dense


def pair() -> Pair:
    drawn = striped(0.5)(np.random.default_rng(4))
    return Pair(drawn.codes[:90, :140].copy(), drawn.a[:90, :140].copy(), drawn.b[:90, :140].copy())


def grid_of(masks: Pair) -> Grid:
    shape = shape_of(masks.codes.shape)
    assert shape is not None
    grid = Grid(shape)
    a, b = (pack(bits.reshape(-1)) for bits in (masks.a, masks.b))
    grid.add(count_grid(a, b, masks.codes.reshape(-1), 0, shape))
    return grid


def sums_of(masks: Pair, channels: Channels | None = None, neurons: Neurons | None = None) -> OverlapSums:
    grid = grid_of(masks)
    return sums_from_classes(grid.cells, "x", "x", grid, has_lines=True, shared=Shared(channels, neurons))


def rates(masks: Pair) -> tuple[np.ndarray, np.ndarray]:
    classes = classes_of(masks.codes.reshape(-1)).reshape(masks.codes.shape)
    p, q = np.zeros(classes.shape), np.zeros(classes.shape)
    for number in np.unique(classes):
        inside = classes == number
        p[inside], q[inside] = masks.a[inside].mean(), masks.b[inside].mean()
    return p, q


def clustered(sums: np.ndarray) -> float:
    return float(((sums - sums.mean()) ** 2).sum() * sums.size / (sums.size - 1))


def two_way(influence: np.ndarray) -> float:
    rows, columns = clustered(influence.sum(1)), clustered(influence.sum(0))
    single = (influence**2).sum()
    return float(np.sqrt(max(rows + columns - single, single / 2)))


def test_influences_below_chance_and_on_the_uniform_null_are_by_the_number_of_coordinates_too() -> None:
    """Dense masks that share few: the bound below is |A| + |B| - n, and uniform masks share |A| |B| / n."""
    rng = np.random.default_rng(3)
    a = rng.random((60, 90)) < 0.7
    b = np.where(a, rng.random(a.shape) < 0.6, rng.random(a.shape) < 0.9)
    over = figures_of(sums_of(Pair(np.full(a.shape, 0x3F81, np.uint16), a, b)))
    p, q, n, both = a.mean(), b.mean(), a.size, (a & b).sum()
    expected, least = p * q * n, a.sum() + b.sum() - n
    headroom = (both - expected) / (expected - least)
    assert headroom < -0.1
    excess, room = (a - p) * (b - q), (a * q + b * p - p * q) - (a + 0.0 + b - 1)
    error = two_way((excess - headroom * room) / (expected - least))
    for null in (GLOBAL, MATCHED):
        assert over.nulls[null].headroom == pytest.approx(headroom)
        interval = headroom - Z95 * error, headroom + Z95 * error
        assert over.nulls[null].headroom_interval == pytest.approx(interval)
        assert over.nulls[null].standard_error == pytest.approx(two_way(excess))


def part(masks: Pair, rows: slice, columns: slice) -> Pair:
    codes, a, b = masks
    return Pair(codes[rows, columns].copy(), a[rows, columns].copy(), b[rows, columns].copy())


def excess_of_each(masks: Pair) -> np.ndarray:
    p, q = rates(masks)
    return np.asarray((masks.a - p) * (masks.b - q))


def test_a_channel_of_the_residual_stream_is_one_cluster_in_all_tensors() -> None:
    """One tensor has 60 channels in its columns, another in its rows, a third in the rows of two matrices."""
    masks = pair()
    reads = part(masks, slice(0, 30), slice(0, 60))
    writes = part(masks, slice(30, 90), slice(60, 90))
    codes, a, b = part(masks, slice(30, 90), slice(90, 140))
    stacked = Pair(np.concatenate([codes, codes[::-1]]), np.concatenate([a, a[::-1]]), np.concatenate([b, b[::-1]]))
    alone = part(masks, slice(0, 20), slice(60, 140))
    sums = sums_of(reads, Channels("columns", 60)) + sums_of(alone) + sums_of(writes, Channels("rows", 60))
    sums += sums_of(stacked, Channels("rows", 60))
    by_tensor = [excess_of_each(tensor) for tensor in (reads, writes, stacked, alone)]
    first, second, third, fourth = by_tensor
    channels = first.sum(0) + second.sum(1) + third.sum(1).reshape(2, 60).sum(0)
    lines = (first.sum(1), second.sum(0), third.sum(0), fourth.sum(0), fourth.sum(1))
    variance = sum(map(clustered, lines)) + clustered(channels)
    variance -= sum(float((excess**2).sum()) for excess in by_tensor)
    assert figures_of(sums).nulls[MATCHED].standard_error == pytest.approx(np.sqrt(variance))


def test_a_neuron_is_one_cluster_in_all_matrices_of_its_ffn() -> None:
    """One FFN of 60 neurons with two matrices in whose rows they are, one in whose columns, and another FFN."""
    masks = pair()
    up, gate = part(masks, slice(0, 60), slice(0, 40)), part(masks, slice(0, 60), slice(40, 75))
    down, other = part(masks, slice(60, 90), slice(0, 60)), part(masks, slice(60, 90), slice(60, 120))
    axes: tuple[Neurons, ...] = (Neurons("a", "rows", 60), Neurons("a", "rows", 60), Neurons("a", "columns", 60))
    parts = [(up, axes[0]), (gate, axes[1]), (down, axes[2]), (other, Neurons("b", "columns", 60))]
    sums = sum((sums_of(matrix, neurons=neurons) for matrix, neurons in parts), OverlapSums())
    by_tensor = [excess_of_each(matrix) for matrix, _ in parts]
    neurons = by_tensor[0].sum(1) + by_tensor[1].sum(1) + by_tensor[2].sum(0)
    alone = by_tensor[0].sum(0), by_tensor[1].sum(0), by_tensor[2].sum(1), by_tensor[3].sum(0), by_tensor[3].sum(1)
    variance = clustered(neurons) + sum(map(clustered, alone)) - sum(float((each**2).sum()) for each in by_tensor)
    assert figures_of(sums).nulls[MATCHED].standard_error == pytest.approx(np.sqrt(variance))
    # What stands between the matrices of an FFN has no neurons, and does not end it.
    spread = sums_of(up, neurons=axes[0]).spread + sums_of(other).spread + sums_of(gate, neurons=axes[1]).spread
    assert spread.neurons == pytest.approx(
        (sums_of(up, neurons=axes[0]).spread + sums_of(gate, neurons=axes[1]).spread).neurons
    )


def test_streams_wider_than_the_limit_have_neighbors_in_one_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    masks, channels = pair(), Channels("columns", 140)
    single = sums_of(masks, channels).spread.channels
    assert single.shape[0] == 140
    monkeypatch.setattr("maskreg.analysis.clusters.MAX_CHANNELS", 50)
    wide = sums_of(masks, channels).spread.channels
    assert wide == pytest.approx(np.stack([single[start : start + 3].sum(0) for start in range(0, 140, 3)]))
    # Where lines were counted together, they are no channels.
    assert sums_of(masks, Channels("columns", 141)).spread.channels.size == 0
    monkeypatch.setattr("maskreg.analysis.grid.MAX_COUNTS", 4 * 70 * grid_of(masks).classes.size)
    assert sums_of(masks, Channels("columns", 70)).spread.channels.size == 0


def test_intervals_are_right_where_channels_have_rates_of_their_own_in_all_tensors() -> None:
    """Of 60 draws of six tensors, the spread of the ratio against the mean standard error; clusters of one tensor
    alone have two thirds of it."""
    rng = np.random.default_rng(6)
    codes = np.full((24, 64), 0x3C01, np.uint16)
    ratios: list[float] = []
    errors = []
    for _ in range(60):
        chances = [np.clip(0.3 * np.exp(rng.normal(0, 0.5, 64)), 0, 0.95) for _ in range(2)]
        tensors = [Pair(codes, *(rng.random(codes.shape) < chance for chance in chances)) for _ in range(6)]
        found = []
        for channels in (Channels("columns", 64), None):
            over = figures_of(sum((sums_of(tensor, channels) for tensor in tensors), OverlapSums())).nulls[MATCHED]
            assert over.ratio is not None and over.ratio_interval is not None
            found.append((over.ratio_interval[1] - over.ratio) / Z95)
        ratios.append(over.ratio or 0.0)
        errors.append(found)
    with_channels, without = np.mean(errors, axis=0) / np.std(ratios)
    assert 0.75 < with_channels < 1.25
    assert without < 0.75


@pytest.mark.parametrize("name", [*(name for name in INDEPENDENT if name.startswith("scaled")), "striped, sigma .6"])
def test_what_rows_and_columns_add_is_what_a_dense_fit_adds(name: str) -> None:
    masks = part(INDEPENDENT[name](np.random.default_rng(3)), slice(0, 160), slice(0, 90))
    p, q = rates(masks)
    a, b = (dense.fitted(moved, masks.codes).chances for moved in (masks.a, masks.b))
    expected = (a - p) * (b - q)
    added = margins_of(grid_of(masks))
    assert added.added == pytest.approx(expected.sum(), abs=5e-4 * (a * b).sum())
    assert added.by_row == pytest.approx(expected.sum(1), abs=0.2)
    assert added.by_column == pytest.approx(expected.sum(0), abs=0.2)


def test_all_kernels_fit_the_same(kernels: str) -> None:
    masks = pair()
    added = margins_of(grid_of(masks))
    with using("numpy"):
        plain = margins_of(grid_of(masks))
    assert added.by_row == pytest.approx(plain.by_row, abs=1e-9)
    assert added.by_column == pytest.approx(plain.by_column, abs=1e-9)


def test_a_part_of_a_large_tensor_tells_what_all_of_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = INDEPENDENT["scaled, updates grow with rows and columns"](np.random.default_rng(4))
    whole = margins_of(grid_of(masks))
    monkeypatch.setattr("maskreg.analysis.grid.MOST_POINTS", masks.codes.size // 4)
    grid = grid_of(masks)
    assert 0.15 < grid.share < 0.25
    assert margins_of(grid).added == pytest.approx(whole.added, rel=0.02)


def test_nothing_is_expected_in_rows_that_never_move() -> None:
    rng = np.random.default_rng(6)
    codes = to_codes(rng.normal(0, 0.02, (300, 200)))
    still = rng.random((300, 1)) < 0.6
    a, b = ((rng.random(codes.shape) < 0.4) & ~still for _ in range(2))
    figures = figures_of(sums_of(Pair(codes, a, b)))
    assert (figures.nulls[MATCHED].headroom or 0) > 0.25
    assert figures.nulls[STRIPED].expected == pytest.approx(a.sum() * b.sum() / (~still).sum() / 200, rel=5e-3)


def test_standard_errors_of_strongly_striped_masks_are_not_too_large() -> None:
    """Of 150 draws, the spread of the difference against the standard error; rows and columns explain a third."""
    rng = np.random.default_rng(8)
    codes = np.full((48, 64), 0x3F81, np.uint16)
    deviations = []
    for _ in range(150):
        rates = [0.5 + rng.choice([-0.2, 0.2], (48, 1)) + rng.choice([-0.2, 0.2], (1, 64)) for _ in range(2)]
        sums = sums_of(Pair(codes, *(rng.random(codes.shape) < rate for rate in rates)))
        over = figures_of(sums).nulls[STRIPED]
        deviations.append((sums.counts.both - (over.expected or 0)) / (over.standard_error or 0))
    assert 0.88 < np.std(deviations) < 1.12


def test_standard_errors_of_masks_with_the_same_stripes_are_those_of_their_noise() -> None:
    """Rows and columns differ from others of their bin, and the masks agree in that: it is expected line by line."""
    variances = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        steps = np.exp(0.3 - rng.normal(0, 0.6, (300, 1)) - rng.normal(0, 0.6, (1, 256)))
        rates = np.vectorize(math.erfc)(steps / math.sqrt(2))
        a, b = (rng.random(rates.shape) < rates for _ in range(2))
        over = figures_of(sums_of(Pair(np.full(rates.shape, 0x3F81, np.uint16), a, b))).nulls[STRIPED]
        variances.append(((over.standard_error or 0) ** 2, ((rates * (1 - rates)) ** 2).sum()))
    estimated, true = np.sum(variances, axis=0)
    assert estimated == pytest.approx(true, rel=0.15)


def test_groups_add_up() -> None:
    masks = pair()
    one = sums_of(masks)
    both = figures_of(one + one)
    alone: OverlapFigures = figures_of(one)
    # Twice as many independent clusters: the variance of the sum doubles.
    assert both.nulls[MATCHED].standard_error == pytest.approx(np.sqrt(2) * (alone.nulls[MATCHED].standard_error or 0))
    assert both.nulls[MATCHED].headroom == pytest.approx(alone.nulls[MATCHED].headroom)
