"""The arms: what each trains on, and with which optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from scripts.reproduce.masks import FULL, Kind, MaskSpec
from scripts.reproduce.origins import EXTERNAL, OPD, ORIGINS, SFT
from scripts.reproduce.setting import Setting
from scripts.reproduce.training import Job
from scripts.reproduce.tuning import Needs, Tuning

Rate = Literal["lr", "norm matched", "SGD"]
"""AdamW's learning rate of the setting, the one at which an update has the OPD mask's norm, or SGD's."""


@dataclass(frozen=True)
class Arm:
    """One arm.

    Attributes:
        origin: of the masks that it trains on or derives its masks from; empty for all coordinates.
        kind: of a baseline of these masks; empty for themselves.
        visible: the mask is a random one, with the density at which as many coordinates change visibly as on the
            origin's masks. One is drawn for each training seed, not for each mask.
        rate: which learning rate, and with it which optimizer.
    """

    origin: str = ""
    kind: Kind = ""
    visible: bool = False
    rate: Rate = "lr"

    @property
    def masks(self) -> bool:
        """Whether its masks have seeds."""
        return bool(self.origin) and not self.visible and ORIGINS[self.origin].trained

    def mask(self, tuning: Tuning, mask_seed: int | None, seed: int) -> MaskSpec:
        """The mask of a run."""
        if not self.origin:
            return FULL
        if self.visible:
            return MaskSpec(kind="random", seed=seed, density=tuning.visible[self.origin])
        digest = tuning.masks[self.origin][str(mask_seed)]
        drawn = self.kind in ("random-per-tensor", "exponent-matched", "subset")
        density = tuning.thinned_share if self.kind == "subset" else None
        return MaskSpec(digest, self.kind, seed if drawn else None, density)


MATCHED, RANDOM, VISIBLE = "exponent-matched", "random", "random, as visible"


def _with_controls(origin: str) -> dict[str, Arm]:
    return {
        origin: Arm(origin),
        f"{origin}: {MATCHED}": Arm(origin, "exponent-matched"),
        f"{origin}: {VISIBLE}": Arm(origin, visible=True),
        f"{origin}: {RANDOM}": Arm(origin, "random-per-tensor"),
    }


NORM = f"{OPD}: random, norm matched"

ARMS: Mapping[str, Arm] = {
    "full": Arm(),
    **{name: arm for origin in ORIGINS for name, arm in _with_controls(origin).items()},
    NORM: Arm(OPD, "random-per-tensor", rate="norm matched"),
    f"{OPD}: thinned": Arm(OPD, "subset"),
    f"{OPD}: low-magnitude": Arm(OPD, "low-magnitude"),
    f"{OPD}: complement": Arm(OPD, "complement"),
    "SGD, full": Arm(rate="SGD"),
    f"SGD, {OPD}": Arm(OPD, rate="SGD"),
}
"""Every arm, in the order of tables."""

CLAIM = (
    "full",
    *(f"{origin}{control}" for origin in (OPD, SFT, EXTERNAL) for control in ("", f": {MATCHED}", f": {VISIBLE}")),
)
"""The arms that are run unless others are named: those on which the claim of masked retraining rests."""

COMPARISONS = (
    (OPD, "full"),
    *((origin, f"{origin}: {control}") for origin in ORIGINS for control in (MATCHED, VISIBLE, RANDOM)),
    *((OPD, origin) for origin in ORIGINS if origin != OPD),
    (OPD, NORM),
    (OPD, f"{OPD}: low-magnitude"),
    (OPD, f"{OPD}: complement"),
    (f"{OPD}: thinned", f"{OPD}: {RANDOM}"),
    (f"{OPD}: {MATCHED}", f"{OPD}: {RANDOM}"),
    (f"SGD, {OPD}", "SGD, full"),
)
"""Planned before the first run: first minus second, on both primary endpoints. Those whose arms were run are tested."""


def arms_of(setting: Setting) -> list[str]:
    """Names of the arms to run: the named ones, or the claim's whose masks there are."""
    chosen = setting.arms or tuple(arm for arm in CLAIM if _has_mask(setting, arm))
    return [arm for arm in ARMS if arm in chosen]


def origins_of(setting: Setting) -> list[str]:
    """The origins whose masks are needed."""
    needed = {ARMS[arm].origin for arm in arms_of(setting)}
    # The run that gives the OPD mask also shows whether weights move at all.
    return [origin for origin in ORIGINS if origin in needed or origin == OPD]


def needs_of(setting: Setting) -> Needs:
    """What the arms to run need of the tuning."""
    arms = [ARMS[name] for name in arms_of(setting)]
    return Needs(
        visible=tuple(dict.fromkeys(arm.origin for arm in arms if arm.visible)),
        norm=any(arm.rate == "norm matched" or arm.kind == "subset" for arm in arms),
        sgd=any(arm.rate == "SGD" for arm in arms),
    )


def missing(setting: Setting) -> str:
    """The first checkpoint that an arm needs and that is not there; empty if there is none."""
    checkpoints = [ORIGINS[ARMS[arm].origin].checkpoint for arm in arms_of(setting) if ARMS[arm].origin]
    return next((name for name in checkpoints if name and not _is_there(setting, name)), "")


def _has_mask(setting: Setting, arm: str) -> bool:
    checkpoint = ORIGINS[ARMS[arm].origin].checkpoint if ARMS[arm].origin else ""
    return not checkpoint or _is_there(setting, checkpoint)


def _is_there(setting: Setting, checkpoint: str) -> bool:
    return (setting.path(checkpoint) / "config.json").is_file()


def jobs_of(setting: Setting, tuning: Tuning) -> list[Job]:
    """All runs; first all arms with the first seeds, so that a part of them is a comparison already."""
    jobs = [
        _job(setting, tuning, name, mask_seed, seed)
        for name in arms_of(setting)
        for mask_seed, seed in setting.runs_of(masks=ARMS[name].masks)
    ]
    return sorted(jobs, key=lambda job: max(_rank(setting.mask_seeds, job.mask_seed), _rank(setting.seeds, job.seed)))


def _rank(seeds: tuple[int, ...], seed: int | None) -> int:
    return 0 if seed is None else seeds.index(seed)


def _job(setting: Setting, tuning: Tuning, name: str, mask_seed: int | None, seed: int) -> Job:
    arm = ARMS[name]
    mask = arm.mask(tuning, mask_seed, seed)
    if arm.rate == "SGD":
        return Job(name, seed, mask, tuning.sgd_rate, "sgd", mask_seed=mask_seed)
    lr = tuning.matched_rate if arm.rate == "norm matched" else setting.lr
    return Job(name, seed, mask, lr, mask_seed=mask_seed)
