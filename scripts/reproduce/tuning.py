"""The runs before the arms: those that give masks, and those that choose learning rates and densities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.reproduce.masks import FULL, MaskSpec
from scripts.reproduce.origins import OPD, ORIGINS
from scripts.reproduce.setting import TUNING_SEED, Setting
from scripts.reproduce.training import Job, slug

DENSITIES = (0.65, 0.95)
"""Of the random masks whose visible densities are measured; others are interpolated."""

CHECKED_STEPS = 5

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Tuning:
    """What the tuning runs determine.

    Attributes:
        masks: digests by origin and mask seed, or "None" for a checkpoint's only mask.
        sgd_rate: learning rate of SGD with the smallest KL on the training problems.
        matched_rate: learning rate of AdamW at which the update of random masks has the norm of the OPD mask's.
        thinned_share: share of the OPD mask's coordinates at which its visible density equals random masks'.
        visible: density at which a random mask has the visible density of an origin's masks, by origin.
    """

    masks: Mapping[str, Mapping[str, str]]
    sgd_rate: float
    matched_rate: float
    thinned_share: float
    visible: Mapping[str, float]


@dataclass(frozen=True)
class Needs:
    """What the chosen arms need of the tuning.

    Attributes:
        visible: origins whose visible density a random mask is to have.
        norm: whether an arm needs a learning rate of random masks, or a thinned mask.
        sgd: whether an arm needs a learning rate of SGD.
    """

    visible: tuple[str, ...]
    norm: bool
    sgd: bool


def mask_jobs(setting: Setting, origins: Sequence[str], folder: Path) -> dict[tuple[str, int], Job]:
    """The full runs that give masks, by origin and seed; each saves its checkpoint in a folder of its own."""
    jobs = {}
    for origin in origins:
        if objective := ORIGINS[origin].objective:
            for seed in setting.mask_seeds:
                checkpoint = str(folder / slug(f"{origin}-{seed}"))
                job = Job(f"{origin} run", seed, FULL, setting.lr, objective=objective, checkpoint=checkpoint)
                jobs[origin, seed] = job
    return jobs


def tuning_jobs(setting: Setting, masks: Mapping[str, Mapping[str, str]], needs: Needs) -> list[Job]:
    """The check of the optimizer, SGD at several learning rates, and how visibly and how far masks move the model."""
    seed, lr = TUNING_SEED, setting.lr
    jobs = [Job("equal to torch", seed, FULL, lr, checked_steps=min(CHECKED_STEPS, setting.steps))]
    if needs.sgd:
        jobs += [Job(f"tuning SGD {rate:g}", seed, FULL, rate, "sgd") for rate in setting.sgd_rates]
    measured = dict.fromkeys((*needs.visible, *((OPD,) if needs.norm else ())))
    jobs += [Job(f"tuning {origin}", seed, MaskSpec(_first(masks, origin)), lr) for origin in measured]
    if needs.norm:
        jobs.append(Job("tuning random", seed, MaskSpec(_first(masks, OPD), "random-per-tensor", seed), lr))
    if needs.visible:
        jobs += [
            Job(f"tuning random {density:g}", seed, MaskSpec(kind="random", seed=seed, density=density), lr)
            for density in DENSITIES
        ]
    return jobs


def tune(
    setting: Setting, masks: Mapping[str, Mapping[str, str]], needs: Needs, records: Mapping[str, Record]
) -> Tuning:
    """Derive the tuning from the records of these runs, by arm."""
    rates = setting.sgd_rates if needs.sgd else ()
    matched_rate = share = 0.0
    if needs.norm:
        masked, random = records[f"tuning {OPD}"], records["tuning random"]
        matched_rate = setting.lr * masked["master_norm"] / max(random["master_norm"], 1e-30)
        share = min(1.0, random["visible_density"] / max(masked["visible_density"], 1e-9))
    points = [(d, records[f"tuning random {d:g}"]["visible_density"]) for d in DENSITIES] if needs.visible else []
    return Tuning(
        masks=masks,
        sgd_rate=min(rates, key=lambda rate: float(records[f"tuning SGD {rate:g}"]["train"]["kl"]), default=0.0),
        matched_rate=matched_rate,
        thinned_share=round(share, 6),
        visible={
            origin: density_for(float(records[f"tuning {origin}"]["visible_density"]), points)
            for origin in needs.visible
        },
    )


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


def _first(masks: Mapping[str, Mapping[str, str]], origin: str) -> str:
    return next(iter(masks[origin].values()))
