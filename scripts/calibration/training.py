"""Draws as training makes them: optimizers on gradients that two runs have nothing of in common but their shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from scripts.calibration.draws import Codes, Draw, Floats, Pair, hidden_start, stripes, to_codes, to_values, weights

Rng = np.random.Generator
Update = Callable[[Rng, Codes], Floats]
"""An update of weights that are given by their codes."""

_SIZE = 256
_LAYERS = 6


def runs(update: Update, *, off_grid: bool = False) -> Callable[[Rng], Pair]:
    """Two runs with such updates, from the bf16 weights or from the same weights off the grid."""

    def draw(rng: Rng) -> Pair:
        codes = weights(rng, _SIZE)
        starts = hidden_start(rng, codes) if off_grid else to_values(codes)
        return Pair(codes, *(to_codes(starts + update(rng, codes)) != codes for _ in range(2)))

    return draw


def adam(rng: Rng, codes: Codes, steps: int, rate: float, gradient: Update | None = None) -> Floats:
    """Steps of Adam (.9, .999), by default on gradients that are independent in every coordinate."""
    update, mean, square = (np.zeros(codes.shape) for _ in range(3))
    for step in range(1, steps + 1):
        own = gradient(rng, codes) if gradient else rng.normal(size=codes.shape)
        mean, square = 0.9 * mean + 0.1 * own, 0.999 * square + 0.001 * own**2
        update -= rate * mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.999**step)) + 1e-12)
    return update


def momentum(rng: Rng, codes: Codes, steps: int = 10) -> Floats:
    """SGD with momentum .9, while its learning rate warms up."""
    update, mean = np.zeros(codes.shape), np.zeros(codes.shape)
    for step in range(steps):
        mean = 0.9 * mean + rng.normal(size=codes.shape)
        update += 2e-6 * (step + 1) / steps * mean
    return update


def noise(rng: Rng, codes: Codes, scale: float = 3e-5, tails: float = 0, decay: float = 0) -> Floats:
    """Noise of one size, normal or of Student's t, and decay of the weights."""
    drawn = rng.standard_t(tails, codes.shape) if tails else rng.normal(size=codes.shape)
    update: Floats = scale * drawn - decay * to_values(codes)
    return update


def striped(rng: Rng, codes: Codes) -> Floats:
    """Normal noise, each row and column with a scale of its own."""
    return rng.normal(size=codes.shape) * stripes(rng, 0.3, codes.shape[0])


def signs(rng: Rng, codes: Codes, steps: int = 16) -> Floats:
    """Steps of one size, each up or down."""
    update: Floats = 1e-5 * (2.0 * rng.binomial(steps, 0.5, codes.shape).astype(np.float64) - steps)
    return update


def low_rank(rng: Rng, codes: Codes, rank: int = 8) -> Floats:
    """A product of two thin matrices."""
    left, right = rng.normal(size=(codes.shape[0], rank)), rng.normal(size=(rank, codes.shape[1]))
    update: Floats = 3e-5 / np.sqrt(rank) * (left @ right)
    return update


def layer_gradient(rng: Rng, codes: Codes, batch: int = 64) -> Floats:
    """Errors times inputs, whose covariance both runs share: its spectrum falls as 1 / k."""
    basis = np.linalg.qr(np.random.default_rng(7).normal(size=(codes.shape[1],) * 2))[0]
    inputs = rng.normal(size=(batch, codes.shape[1])) / np.sqrt(np.arange(1, codes.shape[1] + 1)) @ basis
    gradient = rng.normal(size=(batch, codes.shape[0])).T @ inputs
    scaled: Floats = 3e-5 * gradient / np.sqrt(np.mean(gradient**2))
    return scaled


def zipf(rng: Rng, codes: Codes) -> Floats:
    """Rows move as often as their token is drawn: as 1 / rank, the same ranks in both runs."""
    counts = rng.poisson(200 / np.arange(1, codes.shape[0] + 1))
    return 1e-5 * np.sqrt(counts)[:, None] * rng.normal(size=codes.shape)


def sparse(rng: Rng) -> Pair:
    """Noise, and noise on one coordinate in 40."""
    codes = weights(rng, _SIZE)
    updates = noise(rng, codes, 4e-5) * (rng.random(codes.shape) < 1 / 40), noise(rng, codes, 4e-5)
    return Pair(codes, *(to_codes(to_values(codes) + update) != codes for update in updates))


def heavy_layers(rng: Rng) -> list[Pair]:
    """Layers whose scales have heavy tails, the same in both runs."""
    return [runs(partial(noise, scale=scale))(rng) for scale in 1e-5 * np.exp(rng.standard_t(3, _LAYERS))]


TRAINED: Mapping[str, Draw] = {
    "heavy-tailed layers": heavy_layers,
    "momentum, warming up": runs(momentum),
    "shared input covariance, SGD": runs(layer_gradient),
    "shared input covariance, 10 steps of Adam": runs(partial(adam, steps=10, rate=1e-5, gradient=layer_gradient)),
    "rows by Zipf's law": runs(zipf),
    "16 steps of one size": runs(signs),
    "low rank": runs(low_rank),
    "Student-t noise": runs(partial(noise, scale=2e-5, tails=3)),
    "1 % x 40 %": sparse,
    "shared decay of .0005": runs(partial(noise, decay=5e-4)),
    **{f"{n} step{'s' * (n > 1)} of Adam": runs(partial(adam, steps=n, rate=3e-5 / n**0.5)) for n in (1, 2, 5, 20)},
    **{
        f"{n} step{'s' * (n > 1)} of Adam, off the grid": runs(partial(adam, steps=n, rate=3e-6), off_grid=True)
        for n in (1, 2, 5, 20)
    },
    "Student-t noise, off the grid": runs(partial(noise, scale=5e-6, tails=3), off_grid=True),
    "striped, off the grid": runs(striped, off_grid=True),
}
"""Updates that know nothing of each other, by name."""
