"""The arms, and the runs that settle what they need first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from scripts.reproduce.masks import FULL, Which
from scripts.reproduce.setting import MASK_SEED, TUNING_SEED, Setting
from scripts.reproduce.training import Job

NORM = "random, norm matched"
"""Random masks at the learning rate at which they end as far from the source as the OPD mask does."""


@dataclass(frozen=True)
class Settled:
    """What the runs of seeds that no arm has decide.

    Attributes:
        opd: digest of the mask of the full run with ``MASK_SEED``.
        rlvr: digest of the mask of the ``rlvr`` checkpoint; empty where there is none.
        sgd_rate: of those tried, the one with the smallest KL on the problems that are trained on.
        matched_rate: AdamW's rate for random masks whose update has the norm of the OPD mask's.
        thinned_density: nominal, at which the OPD mask's visible density is that of random masks.
    """

    opd: str
    rlvr: str
    sgd_rate: float
    matched_rate: float
    thinned_density: float


Make = Callable[[Setting, Settled, int], Job]


def _adamw(arm: str, which: Callable[[Settled, int], Which]) -> Make:
    return lambda setting, settled, seed: Job(arm, seed, which(settled, seed), setting.lr)


ARMS: Mapping[str, Make] = {
    "full": _adamw("full", lambda _, __: FULL),
    "OPD mask": _adamw("OPD mask", lambda s, _: Which(s.opd)),
    "exponent-matched": _adamw("exponent-matched", lambda s, seed: Which(s.opd, "exponent-matched", seed)),
    "random": _adamw("random", lambda s, seed: Which(s.opd, "random-per-tensor", seed)),
    "OPD mask, thinned": _adamw(
        "OPD mask, thinned", lambda s, seed: Which(s.opd, "subset", seed, density=s.thinned_density)
    ),
    "low-magnitude": _adamw("low-magnitude", lambda s, _: Which(s.opd, "low-magnitude")),
    NORM: lambda setting, s, seed: Job(NORM, seed, Which(s.opd, "random-per-tensor", seed), s.matched_rate),
    "RLVR mask": _adamw("RLVR mask", lambda s, _: Which(s.rlvr)),
    "complement": _adamw("complement", lambda s, _: Which(s.opd, "complement")),
    "SGD, full": lambda _, s, seed: Job("SGD, full", seed, FULL, s.sgd_rate, "sgd"),
    "SGD, OPD mask": lambda _, s, seed: Job("SGD, OPD mask", seed, Which(s.opd), s.sgd_rate, "sgd"),
}
"""Every arm, in the order of tables and of runs."""

CONTRASTS = (
    ("OPD mask", "full"),
    ("OPD mask", "random"),
    ("OPD mask", NORM),
    ("OPD mask", "exponent-matched"),
    ("OPD mask", "low-magnitude"),
    ("OPD mask", "RLVR mask"),
    ("OPD mask", "complement"),
    ("OPD mask, thinned", "random"),
    ("exponent-matched", "random"),
    ("SGD, OPD mask", "SGD, full"),
)
"""What is compared besides every arm with the full one: the first minus the second."""

SHADOWED_STEPS = 5


def first_jobs(setting: Setting, kept: str) -> list[Job]:
    """The run that gives the mask, the proof of the optimizer, and SGD at several rates."""
    jobs = [
        Job("mask", MASK_SEED, FULL, setting.lr, keep=kept),
        Job("equal to torch", TUNING_SEED, FULL, setting.lr, shadow=min(SHADOWED_STEPS, setting.steps)),
    ]
    if any(arm.startswith("SGD") for arm in arms_of(setting)):
        jobs += [Job(f"SGD {rate:g}", TUNING_SEED, FULL, rate, "sgd") for rate in setting.sgd_rates]
    return jobs


def tuning_jobs(setting: Setting, opd: str) -> list[Job]:
    """The runs that show how far masks move, and how visibly."""
    return [
        Job("tuning OPD mask", TUNING_SEED, Which(opd), setting.lr),
        Job("tuning random", TUNING_SEED, Which(opd, "random-per-tensor", TUNING_SEED), setting.lr),
    ]


def settle(setting: Setting, opd: str, rlvr: str, records: Mapping[str, dict[str, Any]]) -> Settled:
    """What the records of those runs, by arm, decide."""
    mine, random = records["tuning OPD mask"], records["tuning random"]
    tried = {rate: records[name] for rate in setting.sgd_rates if (name := f"SGD {rate:g}") in records}
    best = min(tried, key=lambda rate: float(tried[rate]["train"]["kl"])) if tried else 0.0
    density = min(1.0, random["visible_density"] / max(mine["visible_density"], 1e-9)) * mine["density"]
    return Settled(
        opd, rlvr, best, setting.lr * mine["master_norm"] / max(random["master_norm"], 1e-30), round(density, 6)
    )


def arms_of(setting: Setting) -> list[str]:
    """Names of the arms that are run; that of the RLVR mask needs its checkpoint."""
    wanted = [arm for arm in ARMS if not setting.arms or arm in setting.arms]
    return [arm for arm in wanted if arm != "RLVR mask" or setting.path("rlvr").is_dir()]


def jobs_of(setting: Setting, settled: Settled) -> list[Job]:
    """All runs, seed by seed, so that whole seeds are there first."""
    return [ARMS[arm](setting, settled, seed) for seed in setting.seeds for arm in arms_of(setting)]
