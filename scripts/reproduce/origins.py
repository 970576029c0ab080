"""Where masks come from: full runs of the student with several seeds, and checkpoints that others trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scripts.reproduce.training import Objective


@dataclass(frozen=True)
class Origin:
    """What masks are extracted from: full runs with an objective, one for each mask seed, or a single checkpoint."""

    description: str
    objective: Objective | None = None
    checkpoint: str = ""

    @property
    def trained(self) -> bool:
        """Whether its masks come from runs of the student, one for each mask seed."""
        return self.objective is not None


OPD, SFT, EXTERNAL, RLVR = "OPD mask", "SFT mask", "external OPD mask", "RLVR mask"

ORIGINS: Mapping[str, Origin] = {
    OPD: Origin("full runs of the same recipe with other seeds", "reverse KL"),
    SFT: Origin("full runs on right answers, without a teacher, all else equal", "cross entropy"),
    EXTERNAL: Origin("CHECKPOINTS/opd: on-policy distillation by another trainer", checkpoint="opd"),
    RLVR: Origin("CHECKPOINTS/rlvr: reinforcement learning by another trainer", checkpoint="rlvr"),
}
"""Every origin, in the order of tables."""
