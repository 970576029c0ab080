"""Draws: two masks of one matrix, made by updates that know nothing of each other, or nearly nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float64]

SIZE = 512
"""Rows and columns of a matrix."""

WEIGHT_SCALE = 0.02
"""Standard deviation of the weights."""


class Pair(NamedTuple):
    """Two masks of one matrix, and the codes of its source: arrays of one shape."""

    codes: Codes
    a: Bits
    b: Bits


def to_codes(values: Floats) -> Codes:
    """The nearest bf16 codes, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def to_values(codes: Codes) -> Floats:
    """The numbers of bf16 codes."""
    return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def weights(rng: np.random.Generator, size: int = SIZE) -> Codes:
    """Codes of a matrix of normal weights."""
    return to_codes(rng.normal(0, WEIGHT_SCALE, (size, size)))


def moved_by_rounding(rng: np.random.Generator, starts: Floats, codes: Codes, scale: Floats | float) -> Bits:
    """What Gaussian noise moves, seen through bf16."""
    moved: Bits = to_codes(starts + rng.normal(0, 1, starts.shape) * scale) != codes
    return moved


def hidden_start(rng: np.random.Generator, codes: Codes) -> Floats:
    """Weights anywhere in the rounding cells of their codes."""
    values = to_values(codes)
    up, down = to_values(codes + np.uint16(1)) - values, values - to_values(codes - np.uint16(1))
    place = rng.random(codes.shape)
    starts: Floats = values - down / 2 + place * (up + down) / 2
    return np.where(to_codes(starts) == codes, starts, values)


def uniform(rng: np.random.Generator) -> Pair:
    """Anywhere, at .3 and .2."""
    codes = weights(rng)
    return Pair(codes, rng.random(codes.shape) < 0.3, rng.random(codes.shape) < 0.2)


def by_exponent(rng: np.random.Generator) -> Pair:
    """At a rate that falls with the exponent."""
    codes = weights(rng)
    rate = np.clip((130 - (codes >> 7 & 0xFF).astype(float)) / 20, 0, 1) ** 2
    return Pair(codes, rng.random(codes.shape) < rate, rng.random(codes.shape) < rate * 0.7)


def on_grid(rng: np.random.Generator) -> Pair:
    """Rounding alone, from the bf16 weights."""
    codes = weights(rng)
    starts = to_values(codes)
    return Pair(codes, *(moved_by_rounding(rng, starts, codes, scale) for scale in (3e-5, 2e-5)))


def off_grid(scale: float) -> Callable[[np.random.Generator], Pair]:
    """Rounding alone, from the same weights off the grid, by noises of this scale and twice it."""

    def draw(rng: np.random.Generator) -> Pair:
        codes = weights(rng)
        starts = hidden_start(rng, codes)
        return Pair(codes, *(moved_by_rounding(rng, starts, codes, s) for s in (scale, 2 * scale)))

    return draw


def striped(sigma: float) -> Callable[[np.random.Generator], Pair]:
    """Rounding alone, each row and column with a scale of its own, independently in both."""

    def draw(rng: np.random.Generator) -> Pair:
        codes = weights(rng)
        starts = to_values(codes)
        return Pair(codes, *(moved_by_rounding(rng, starts, codes, stripes(rng, sigma)) for _ in range(2)))

    return draw


def striped_alike(sigma: float) -> Callable[[np.random.Generator], Pair]:
    """Rounding alone, each row and column with a scale of its own, the same in both."""

    def draw(rng: np.random.Generator) -> Pair:
        codes = weights(rng)
        starts, scales = to_values(codes), stripes(rng, sigma)
        return Pair(codes, *(moved_by_rounding(rng, starts, codes, scales) for _ in range(2)))

    return draw


def scaled(by_row: float, by_column: float, sigma: float = 0.5) -> Callable[[np.random.Generator], Pair]:
    """Rounding alone, of weights with a scale for every row and column; noises follow these to some powers in both."""

    def draw(rng: np.random.Generator) -> Pair:
        shape = 2 * SIZE, SIZE // 2
        rows, columns = (np.exp(rng.normal(0, sigma, line)) for line in ((shape[0], 1), (1, shape[1])))
        codes = to_codes(rng.normal(0, WEIGHT_SCALE, shape) * rows * columns)
        starts, scales = to_values(codes), 3e-5 * rows**by_row * columns**by_column
        return Pair(codes, *(moved_by_rounding(rng, starts, codes, scales) for _ in range(2)))

    return draw


def still_rows(share: float) -> Callable[[np.random.Generator], Pair]:
    """Rounding alone, in rows that both have in common: tokens that the data holds, say."""

    def draw(rng: np.random.Generator) -> Pair:
        codes = weights(rng)
        starts, scales = to_values(codes), np.where(rng.random((SIZE, 1)) < share, 0.0, 3e-5)
        return Pair(codes, *(moved_by_rounding(rng, starts, codes, scales) for _ in range(2)))

    return draw


def stripes(rng: np.random.Generator, sigma: float, size: int = SIZE) -> Floats:
    """Scales of noise, as products of rows' and columns' scales."""
    scales: Floats = 3e-5 * np.exp(sum(rng.normal(0, sigma, shape) for shape in ((size, 1), (1, size))))
    return scales


def tiny(a: int, b: int) -> Callable[[np.random.Generator], Pair]:
    """So many coordinates, anywhere."""

    def draw(rng: np.random.Generator) -> Pair:
        codes = weights(rng)
        masks = np.zeros((2, codes.size), bool)
        for mask, count in zip(masks, (a, b), strict=True):
            mask[rng.choice(codes.size, count, replace=False)] = True
        return Pair(codes, *masks.reshape(2, *codes.shape))

    return draw


INDEPENDENT: Mapping[str, Callable[[np.random.Generator], Pair]] = {
    "uniform, .3 x .2": uniform,
    "by exponent": by_exponent,
    "rounding, on the grid": on_grid,
    "rounding, off the grid, 1e-6": off_grid(1e-6),
    "rounding, off the grid, 1e-5": off_grid(1e-5),
    "rounding, off the grid, 1e-4": off_grid(1e-4),
    "striped, sigma .3": striped(0.3),
    "striped, sigma .6": striped(0.6),
    "striped, sigma .3, in both alike": striped_alike(0.3),
    "striped, sigma .6, in both alike": striped_alike(0.6),
    "striped, half of the rows still in both": still_rows(0.5),
    "scaled, updates grow with rows and columns": scaled(1, 1),
    "scaled, updates fall with rows and columns": scaled(-1, -1),
    "scaled, updates grow with rows, fall with columns": scaled(1, -1),
    "scaled, updates grow with rows": scaled(1, 0),
    "scaled, updates grow with columns": scaled(0, 1),
    "tiny, 150 x 150": tiny(150, 150),
    "tiny, 1 x 2": tiny(1, 2),
}
"""Updates that know nothing of each other, by name."""
