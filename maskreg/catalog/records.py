"""Records that a catalog keeps and a store does not have: measurements and events."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from maskreg.digest import Digest
from maskreg.errors import UsageError

RLVR_OVERLAP = "rlvr_overlap"
"""The metric whose latest value over the whole mask becomes searchable."""

OVERLAP = "overlap"
"""The lift of one mask over uniform random, against another mask."""

SEED_OVERLAP = "seed_overlap"
"""The same between two runs of one recipe that differ only in their seed: the ceiling for other overlaps."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Measurement:
    """One number that was measured on an artifact.

    Attributes:
        digest: the artifact.
        metric: what was measured, such as ``overlap`` or ``rlvr_overlap``.
        value: the number, finite.
        against: digest of the other artifact, or a baseline's text; empty when there is none.
        by_group: the tensors that it was measured on, such as ``--role ffn --layers 0-11``; empty for the whole mask.
        detail: anything else worth keeping, as JSON.
        by: who measured.
        at: when (aware).
        id: number of the row; 0 before it is recorded.
    """

    digest: Digest
    metric: str
    value: float
    against: str = ""
    by_group: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    by: str = ""
    at: datetime = field(default_factory=_now)
    id: int = 0

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise UsageError(f"{self.metric} is {self.value}: only a finite number can be recorded")
        _check(self.detail, self.at)


@dataclass(frozen=True)
class Event:
    """One event of the audit log.

    Attributes:
        action: such as ``publish`` or ``gc``.
        subject: the ref, digest or key it happened to.
        by: who did it.
        detail: anything else worth keeping, as JSON.
        at: when (aware).
        id: number of the row; 0 before it is logged.
    """

    action: str
    subject: str
    by: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    at: datetime = field(default_factory=_now)
    id: int = 0

    def __post_init__(self) -> None:
        _check(self.detail, self.at)


def _check(detail: Mapping[str, Any], at: datetime) -> None:
    if at.tzinfo is None:
        raise UsageError(f"{at} has no time zone")
    try:
        json.dumps(dict(detail), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the detail cannot be written as JSON: {error}") from error
