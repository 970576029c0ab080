"""The arms: what each trains on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from scripts.reproduce.masks import FULL, MaskSpec
from scripts.reproduce.origins import EXTERNAL, OPD, ORIGINS, SFT
from scripts.reproduce.setting import Setting
from scripts.reproduce.training import Job
from scripts.reproduce.tuning import Tuning

MATCHED, VISIBLE = "exponent-matched", "random, as visible"


class Arm(NamedTuple):
    """One arm.

    Attributes:
        origin: of the masks that it trains on or derives its masks from; empty for all coordinates.
        control: of these masks; empty for themselves. For ``VISIBLE`` one mask is drawn for each training seed, with
            the density at which as many coordinates change visibly as on the origin's masks.
    """

    origin: str = ""
    control: str = ""

    @property
    def masks(self) -> bool:
        """Whether its masks have seeds."""
        return bool(self.origin) and self.control != VISIBLE and ORIGINS[self.origin].trained

    def mask(self, tuning: Tuning, mask_seed: int | None, seed: int) -> MaskSpec:
        """The mask of a run."""
        if not self.origin:
            return FULL
        if self.control == VISIBLE:
            return MaskSpec(seed=seed, density=tuning.visible[self.origin])
        return MaskSpec(tuning.masks[self.origin][str(mask_seed)], seed if self.control else None)


ARMS: Mapping[str, Arm] = {
    "full": Arm(),
    **{
        f"{origin}: {control}" if control else origin: Arm(origin, control)
        for origin in ORIGINS
        for control in ("", MATCHED, VISIBLE)
    },
}
"""Every arm, in the order of tables."""

CLAIM = ("full", *(name for name, arm in ARMS.items() if arm.origin in (OPD, SFT, EXTERNAL)))
"""The arms that are run unless others are named: those on which the claim of masked retraining rests."""

COMPARISONS = (
    (OPD, "full"),
    *((origin, f"{origin}: {control}") for origin in ORIGINS for control in (MATCHED, VISIBLE)),
    *((OPD, origin) for origin in ORIGINS if origin != OPD),
)
"""Planned before the first run: first minus second, on both primary endpoints. Those whose arms were run are tested."""


def arms_of(setting: Setting) -> list[str]:
    """Names of the arms to run: the named ones, or the claim's whose masks there are."""
    chosen = setting.arms or tuple(arm for arm in CLAIM if not _absent(setting, arm))
    return [arm for arm in ARMS if arm in chosen]


def origins_of(setting: Setting) -> list[str]:
    """The origins whose masks are needed."""
    needed = {ARMS[arm].origin for arm in arms_of(setting)}
    # The run that gives the OPD mask also shows whether weights move at all.
    return [origin for origin in ORIGINS if origin in needed or origin == OPD]


def shown_as_visible(setting: Setting) -> list[str]:
    """The origins whose visible density a random mask is to have."""
    return list(dict.fromkeys(ARMS[name].origin for name in arms_of(setting) if ARMS[name].control == VISIBLE))


def missing(setting: Setting) -> str:
    """The first checkpoint that an arm needs and that is not there; empty if there is none."""
    return next(filter(None, (_absent(setting, arm) for arm in arms_of(setting))), "")


def _absent(setting: Setting, arm: str) -> str:
    checkpoint = ORIGINS[ARMS[arm].origin].checkpoint if ARMS[arm].origin else ""
    return checkpoint if checkpoint and not (setting.path(checkpoint) / "config.json").is_file() else ""


def jobs_of(setting: Setting, tuning: Tuning) -> list[Job]:
    """All runs; first all arms with the first seeds, so that a part of them is a comparison already.

    Each mask is trained on with a training seed of its own.
    """
    return [
        Job(name, seed, ARMS[name].mask(tuning, key, seed), mask_seed=key)
        for mask_seed, seed in zip(setting.mask_seeds, setting.seeds, strict=True)
        for name in arms_of(setting)
        for key in [mask_seed if ARMS[name].masks else None]
    ]
