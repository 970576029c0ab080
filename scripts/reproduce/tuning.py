"""The runs before the arms: those that give masks, and those that choose the densities of random masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scripts.reproduce.masks import FULL, MaskSpec
from scripts.reproduce.origins import ORIGINS
from scripts.reproduce.setting import TUNING_SEED, Setting
from scripts.reproduce.training import Job, slug

DENSITIES = (0.65, 0.95)
"""Of the random masks whose visible densities are measured; others are interpolated."""

CHECKED_STEPS = 5

Masks = Mapping[str, Mapping[str, str]]
"""Digests by origin and mask seed, or "None" for a checkpoint's only mask."""


class Tuning(NamedTuple):
    """What the tuning runs determine.

    Attributes:
        masks: digests.
        visible: density at which a random mask has the visible density of an origin's masks, by origin.
    """

    masks: Masks
    visible: Mapping[str, float]


def mask_jobs(setting: Setting, origins: Sequence[str], folder: Path) -> dict[tuple[str, int], Job]:
    """The full runs that give masks, by origin and seed; each saves its checkpoint in a folder of its own."""
    return {
        (origin, seed): Job(
            f"{origin} run", seed, FULL, objective=objective, checkpoint=str(folder / slug(f"{origin}-{seed}"))
        )
        for origin in origins
        if (objective := ORIGINS[origin].objective)
        for seed in setting.mask_seeds
    }


def tuning_jobs(setting: Setting, masks: Masks, visible: Sequence[str]) -> list[Job]:
    """The check of the optimizer, and how visibly these origins' masks and random ones change the model."""
    seed = TUNING_SEED
    jobs = [Job("equal to torch", seed, FULL, checked_steps=min(CHECKED_STEPS, setting.steps))]
    jobs += [Job(f"tuning {origin}", seed, MaskSpec(next(iter(masks[origin].values())))) for origin in visible]
    if visible:
        jobs += [Job(f"tuning random {d:g}", seed, MaskSpec(seed=seed, density=d)) for d in DENSITIES]
    return jobs


def tune(masks: Masks, visible: Sequence[str], records: Mapping[str, Mapping[str, Any]]) -> Tuning:
    """Derive the tuning from the records of these runs, by arm."""

    def seen(arm: str) -> float:
        return float(records[f"tuning {arm}"]["visible_density"])

    points = [(density, seen(f"random {density:g}")) for density in DENSITIES] if visible else []
    return Tuning(masks, {origin: density_for(seen(origin), points) for origin in visible})


def density_for(visible: float, points: Sequence[tuple[float, float]]) -> float:
    """The density at which a random mask has a visible density, at most 1.

    Between two densities that were measured, and beyond them, the share of a mask that becomes visible is taken as
    linear in its density, and ``density * share`` as increasing::

        (.65, .390) and (.95, .513) measured: shares .60 and .54
        .90 has a share of .55, so .495 visible: to look as dense as .495, a random mask needs a density of .90
    """
    (low, low_visible), (high, high_visible) = points
    start, slope = low_visible / low, (high_visible / high - low_visible / low) / (high - low)
    bottom, top = 0.0, 1.0
    for _ in range(60):
        middle = (bottom + top) / 2
        reached = middle * (start + slope * (middle - low))
        bottom, top = (middle, top) if reached < visible else (bottom, middle)
    return round(top, 6)
