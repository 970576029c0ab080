"""The arms: what each trains on, by which recipe and from which checkpoint; and the comparisons planned of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

FULL, OTHER_SEED = "full", "full, other seed"
MATCHED, PRINCIPAL, SAFE = "exponent-matched", "principal", "safe"
VISIBLE, AS_SAFE = "random, as visible", "random, as dense as safe"
"""Controls that are random parts of all coordinates: as many as it takes to change as many visibly, or as are safe."""

EXTERNAL, EARLY = "external OPD mask", "early OPD mask"
EARLY_STEPS = 12

PAIRS = {0: 100, 1: 103, 2: 104}
"""The seed of the full run that gives the mask, for each training seed."""

START_SEED = 200
"""Of the run from whose end late arms start; no arm has it."""


class Arm(NamedTuple):
    """What a run trains: everything, a mask, or a control made from a mask."""

    origin: str = ""
    control: str = ""


@dataclass(frozen=True)
class Family:
    """Arms with one recipe and one start.

    Attributes:
        mask: name of what its own full runs change.
        endpoint: the primary one; of ``kl``, ``nll`` and ``p`` in :func:`scripts.reproduce.problems.measure`.
        late: start from the end of a full run, not from the source.
        controls: of its own mask.
        foreign: what else it trains on, with these controls.
    """

    mask: str
    recipe: str
    endpoint: str
    batch: int
    steps: int
    config: Mapping[str, Any] = field(default_factory=dict)
    late: bool = False
    controls: tuple[str, ...] = (MATCHED, VISIBLE, PRINCIPAL, SAFE, AS_SAFE)
    foreign: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def arms(self) -> dict[str, Arm]:
        """All arms by name, in the order of tables."""
        masks = {self.mask: self.controls, **self.foreign}
        made = {
            origin + (f": {control}" if control else ""): Arm(origin, control)
            for origin, controls in masks.items()
            for control in ("", *controls)
        }
        return {FULL: Arm(), OTHER_SEED: Arm(), **made}

    def comparisons(self) -> list[tuple[str, str]]:
        """Planned before the first run: first minus second, on the primary endpoint."""
        pairs = [(self.mask, FULL)]
        for origin, controls in {self.mask: self.controls, **self.foreign}.items():
            pairs += [(origin, f"{origin}: {control}") for control in controls if control in (MATCHED, VISIBLE)]
        if SAFE in self.controls:
            pairs.append((f"{self.mask}: {PRINCIPAL}", f"{self.mask}: {MATCHED}"))
            pairs.append((f"{self.mask}: {SAFE}", f"{self.mask}: {AS_SAFE}"))
        return pairs


_ONE = (MATCHED,)
_SAMPLED = {"max_completion_length": 4}

FAMILIES: Mapping[str, Family] = {
    "OPD": Family(
        "OPD mask", "opd", "kl", 96, 60, _SAMPLED,
        foreign={"SFT mask": _ONE, "GRPO mask": _ONE, EXTERNAL: (MATCHED, VISIBLE), EARLY: _ONE},
    ),
    "SFT": Family("SFT mask", "sft", "nll", 96, 60),
    "GRPO": Family(
        "GRPO mask", "grpo", "p", 384, 24, {**_SAMPLED, "num_generations": 8, "beta": 0, "learning_rate": 5e-6},
    ),
    "late OPD": Family("late OPD mask", "opd", "kl", 96, 60, _SAMPLED, late=True, controls=(MATCHED, VISIBLE)),
}  # fmt: skip
"""Every family, in the order of tables."""

CONFIG = {"lr_scheduler_type": "constant", "warmup_steps": 0, "gradient_checkpointing": False}
