"""The arms: what each trains on, by which recipe and from which checkpoint; and the comparisons planned of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

FULL, OTHER_SEED = "full", "full, other seed"
MATCHED, LOW, PRINCIPAL, SAFE, COMPLEMENT = "exponent-matched", "low-magnitude", "principal", "safe", "complement"
VISIBLE, AS_SAFE = "random, as visible", "random, as dense as safe"
"""Controls that are random parts of all coordinates: as many as it takes to change as many visibly, or as are safe."""

CONTROLS = (MATCHED, VISIBLE, LOW, COMPLEMENT, PRINCIPAL, SAFE, AS_SAFE)
"""Of the own mask of every family."""

EXTERNAL, EARLY = "external OPD mask", "early OPD mask"
EARLY_SHARE = 0.2
"""The early part of a run's steps: 12 of 60, 5 of 24."""

DIRECTIONS, RANDOM_DIRECTIONS = "16 early directions", "16 random directions"
RANK = 16

PAIRS = {0: 100, 1: 103, 2: 104}
"""The seed of the full run that gives the mask, for each training seed."""

START_SEED = 200
"""Of the run from whose end late arms start; no arm has it."""


class Arm(NamedTuple):
    """What a run trains: everything, with any gradients or projected ones, a mask, or a control made from a mask."""

    origin: str = ""
    control: str = ""


@dataclass(frozen=True)
class Family:
    """Arms with one recipe and one start.

    Attributes:
        mask: name of what its own full runs change.
        endpoint: the primary one; of ``kl``, ``nll`` and ``p`` in :func:`scripts.reproduce.problems.measure`.
        late: start from the end of a full run, not from the source.
        foreign: masks of other origins that it trains on, with these controls.
    """

    mask: str
    recipe: str
    endpoint: str
    batch: int
    steps: int
    config: Mapping[str, Any] = field(default_factory=dict)
    late: bool = False
    foreign: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def arms(self) -> dict[str, Arm]:
        """All arms by name, in the order of tables."""
        projected = {name: Arm(DIRECTIONS, name) for name in (DIRECTIONS, RANDOM_DIRECTIONS)}
        return {FULL: Arm(), OTHER_SEED: Arm(), **_on({self.mask: CONTROLS}), **projected, **_on(self.foreign)}

    def comparisons(self) -> list[tuple[str, str]]:
        """Planned before the first run: first minus second, on the primary endpoint."""
        masks = {self.mask: CONTROLS, **self.foreign}
        pairs = ((origin, control) for origin, controls in masks.items() for control in controls)
        return [
            (self.mask, FULL),
            *((origin, f"{origin}: {control}") for origin, control in pairs if control in (MATCHED, VISIBLE, LOW)),
            (f"{self.mask}: {PRINCIPAL}", f"{self.mask}: {MATCHED}"),
            (f"{self.mask}: {SAFE}", f"{self.mask}: {AS_SAFE}"),
            (DIRECTIONS, FULL),
            (DIRECTIONS, RANDOM_DIRECTIONS),
        ]


def _on(masks: Mapping[str, tuple[str, ...]]) -> dict[str, Arm]:
    """Arms on masks, each followed by its controls."""
    return {
        origin + (f": {control}" if control else ""): Arm(origin, control)
        for origin, controls in masks.items()
        for control in ("", *controls)
    }


_ONE = (MATCHED,)
_SAMPLED = {"max_completion_length": 4}

FAMILIES: Mapping[str, Family] = {
    "OPD": Family(
        "OPD mask", "opd", "kl", 96, 60, _SAMPLED,
        foreign={"SFT mask": _ONE, "GRPO mask": _ONE, EXTERNAL: (MATCHED, VISIBLE), EARLY: _ONE},
    ),
    "SFT": Family("SFT mask", "sft", "nll", 96, 60, foreign={"OPD mask": _ONE, "GRPO mask": _ONE}),
    "GRPO": Family(
        "GRPO mask", "grpo", "p", 384, 24, {**_SAMPLED, "num_generations": 8, "beta": 0, "learning_rate": 5e-6},
        foreign={"OPD mask": _ONE, "SFT mask": _ONE},
    ),
    "late OPD": Family("late OPD mask", "opd", "kl", 96, 60, _SAMPLED, late=True),
}  # fmt: skip
"""Every family, in the order of tables."""

CONFIG = {"lr_scheduler_type": "constant", "warmup_steps": 0, "gradient_checkpointing": False}
