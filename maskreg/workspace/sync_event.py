"""One event a sync: what moved, how long each phase took and what was sent; the same fields for publisher and follower.

The logger ``maskreg.sync`` writes each event as a line of JSON, at the level INFO.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from maskreg.digest import Digest
from maskreg.ref import Ref
from maskreg.result import Result

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact

_log = logging.getLogger("maskreg.sync")


@dataclass(frozen=True, kw_only=True)
class SyncEvent(Result):
    """Weights of a run that were published, or brought to where its tag points.

    Attributes:
        ref: the tag of the run.
        digest: the version: the artifact whose target the weights are now.
        bytes: transferred to or from the remote; of a publication without one, stored.
        seconds: what each phase took. A publication has ``find``, for which the weights must not change, ``code`` and
            ``push``; a follower ``fetch``, ``stage``, and ``apply``, which alone is a pause.
        moved: weights that moved; one that moves in two links counts twice.
        moved_share: the same as a share of the compared weights.
        tensors_changed: tensors in which a weight moved, or that were sent whole.
        tensors_skipped: tensors of which nothing was sent.
        tensors_full: tensors that were sent whole.
        at: when it was done (aware, UTC).
    """

    ref: Ref
    digest: Digest
    bytes: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    moved: int = 0
    moved_share: float = 0.0
    tensors_changed: int = 0
    tensors_skipped: int = 0
    tensors_full: int = 0
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def figures(self) -> dict[str, float]:
        """Its numbers as trainers log them: ``sync/find_s``, ``sync/bytes``, ``sync/moved_share``..."""
        times = {f"{phase}_s": took for phase, took in self.seconds.items()}
        numbers = {name: value for name, value in vars(self).items() if type(value) in (int, float)}
        return {f"sync/{name}": value for name, value in {**times, **numbers}.items()}

    def log(self) -> Self:
        """Write it to the log; returns it."""
        if _log.isEnabledFor(logging.INFO):
            _log.info("%s", json.dumps(self.to_json()))
        return self


def counts_of(links: Iterable[Artifact]) -> dict[str, Any]:
    """The fields of an event that say what links hold together: what moved, and tensors."""
    moved = compared = 0
    names, changed, full = set[str](), set[str](), set[str]()
    for link in links:
        moved, compared = moved + link.manifest.totals.nnz, link.manifest.totals.numel
        names |= {row.name for row in link.tensors}
        full |= {row.name for row in link.tensors if row.whole_bytes}
        changed |= {row.name for row in link.tensors if row.differing or row.whole_bytes}
    return {
        "moved": moved,
        "moved_share": moved / compared if compared else 0.0,
        "tensors_changed": len(changed),
        "tensors_skipped": len(names - changed),
        "tensors_full": len(full),
    }
