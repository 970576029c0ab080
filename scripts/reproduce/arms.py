"""The arms, and the tuning runs that they depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from scripts.reproduce.masks import FULL, MaskSpec
from scripts.reproduce.setting import MASK_SEED, TUNING_SEED, Setting
from scripts.reproduce.training import Job

NORM = "random, norm matched"
"""Random masks, with the learning rate at which their update is as long as the OPD mask's."""


@dataclass(frozen=True)
class Tuning:
    """What the tuning runs determine.

    Attributes:
        opd: digest of the mask of the full run with ``MASK_SEED``.
        rlvr: digest of the mask of the ``rlvr`` checkpoint; empty if there is none.
        sgd_rate: learning rate of SGD with the smallest KL on the training problems.
        matched_rate: learning rate of AdamW at which the update of random masks has the norm of the OPD mask's.
        thinned_density: at which the OPD mask's visible density is that of random masks.
    """

    opd: str
    rlvr: str
    sgd_rate: float
    matched_rate: float
    thinned_density: float


MakeJob = Callable[[Setting, Tuning, int], Job]


def _adamw(arm: str, mask: Callable[[Tuning, int], MaskSpec]) -> MakeJob:
    return lambda setting, tuning, seed: Job(arm, seed, mask(tuning, seed), setting.lr)


ARMS: Mapping[str, MakeJob] = {
    "full": _adamw("full", lambda _, __: FULL),
    "OPD mask": _adamw("OPD mask", lambda t, _: MaskSpec(t.opd)),
    "exponent-matched": _adamw("exponent-matched", lambda t, seed: MaskSpec(t.opd, "exponent-matched", seed)),
    "random": _adamw("random", lambda t, seed: MaskSpec(t.opd, "random-per-tensor", seed)),
    "OPD mask, thinned": _adamw(
        "OPD mask, thinned", lambda t, seed: MaskSpec(t.opd, "subset", seed, density=t.thinned_density)
    ),
    "low-magnitude": _adamw("low-magnitude", lambda t, _: MaskSpec(t.opd, "low-magnitude")),
    NORM: lambda setting, t, seed: Job(NORM, seed, MaskSpec(t.opd, "random-per-tensor", seed), t.matched_rate),
    "RLVR mask": _adamw("RLVR mask", lambda t, _: MaskSpec(t.rlvr)),
    "complement": _adamw("complement", lambda t, _: MaskSpec(t.opd, "complement")),
    "SGD, full": lambda _, t, seed: Job("SGD, full", seed, FULL, t.sgd_rate, "sgd"),
    "SGD, OPD mask": lambda _, t, seed: Job("SGD, OPD mask", seed, MaskSpec(t.opd), t.sgd_rate, "sgd"),
}
"""Every arm, in the order of tables and runs."""

COMPARISONS = (
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
"""Compared in addition to every arm with the full one: first minus second."""

CHECKED_STEPS = 5


def first_jobs(setting: Setting, checkpoint: str) -> list[Job]:
    """The run that gives the mask, the check of the optimizer, and SGD at several learning rates."""
    jobs = [
        Job("mask", MASK_SEED, FULL, setting.lr, checkpoint=checkpoint),
        Job("equal to torch", TUNING_SEED, FULL, setting.lr, checked_steps=min(CHECKED_STEPS, setting.steps)),
    ]
    if any(arm.startswith("SGD") for arm in arms_of(setting)):
        jobs += [Job(f"SGD {rate:g}", TUNING_SEED, FULL, rate, "sgd") for rate in setting.sgd_rates]
    return jobs


def tuning_jobs(setting: Setting, opd: str) -> list[Job]:
    """The runs that measure how far masks move the model, and how visibly."""
    return [
        Job("tuning OPD mask", TUNING_SEED, MaskSpec(opd), setting.lr),
        Job("tuning random", TUNING_SEED, MaskSpec(opd, "random-per-tensor", TUNING_SEED), setting.lr),
    ]


def tune(setting: Setting, opd: str, rlvr: str, records: Mapping[str, dict[str, Any]]) -> Tuning:
    """Derive the tuning from the records of these runs, by arm."""
    masked, random = records["tuning OPD mask"], records["tuning random"]
    by_rate = {rate: records[name] for rate in setting.sgd_rates if (name := f"SGD {rate:g}") in records}
    best = min(by_rate, key=lambda rate: float(by_rate[rate]["train"]["kl"])) if by_rate else 0.0
    density = min(1.0, random["visible_density"] / max(masked["visible_density"], 1e-9)) * masked["density"]
    return Tuning(
        opd=opd,
        rlvr=rlvr,
        sgd_rate=best,
        matched_rate=setting.lr * masked["master_norm"] / max(random["master_norm"], 1e-30),
        thinned_density=round(density, 6),
    )


def arms_of(setting: Setting) -> list[str]:
    """Names of the arms to run; the RLVR mask needs its checkpoint."""
    selected = [arm for arm in ARMS if not setting.arms or arm in setting.arms]
    return [arm for arm in selected if arm != "RLVR mask" or setting.path("rlvr").is_dir()]


def jobs_of(setting: Setting, tuning: Tuning) -> list[Job]:
    """All runs, seed by seed, so that complete seeds are available early."""
    return [ARMS[arm](setting, tuning, seed) for seed in setting.seeds for arm in arms_of(setting)]
