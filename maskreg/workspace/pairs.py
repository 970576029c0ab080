"""Pairs: the overlap of two artifacts of a registry, measured once and kept with its catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from maskreg.catalog import Measurement
from maskreg.errors import LimitError, NotFoundError
from maskreg.words import counted
from maskreg.workspace.lineage import ancestry
from maskreg.workspace.workspace import Workspace, opened

if TYPE_CHECKING:
    from maskreg.digest import Digest

COMPARISON = "comparison"
"""The metric of a kept comparison: its value is the lift, its detail all figures."""

MOST_COORDINATES = 1 << 32
"""Coordinates of all masks together that are compared while a client waits."""

_LEFT_OUT = ("names", "tensors")


@dataclass(frozen=True)
class PairFigures:
    """What two masks share.

    Attributes:
        figures: as ``compare --json`` has them of one pair, without names and without figures of single tensors.
        at: when they were measured; None when just now, and not kept because the lift is undefined.
        kept: whether they were read from the catalog.
    """

    figures: Mapping[str, Any]
    at: datetime | None
    kept: bool


def check_size(sizes: Iterable[int], most: int, names: Iterable[object]) -> None:
    """Refuse masks that are too large to be compared while a client waits.

    Args:
        sizes: coordinates of each.
        most: of all together.
        names: what the command line calls them.

    Raises:
        LimitError: they are.
    """
    if (total := sum(sizes)) > most:
        raise LimitError(
            f"the masks have {counted(total, 'coordinate')}; this server compares at most {most:,}",
            compared=" ".join(map(str, names)),
        )


def compare_pair(
    first: Digest,
    second: Digest,
    *,
    most_coordinates: int = MOST_COORDINATES,
    remote: str | None = None,
    by: str = "",
    workspace: Workspace | None = None,
) -> PairFigures:
    """The overlap of two artifacts, from the catalog or measured now, without the source checkpoint.

    Artifacts never change, so what was measured once holds for ever.

    Args:
        first: an artifact.
        second: another one.
        most_coordinates: of both together that are compared.
        remote: where both are, if not in the local registry.
        by: who measures.
        workspace: by default what the settings say.

    Raises:
        NotFoundError: one is not there.
        PartAbsentError: one has no mask there.
        PairMismatchError: they are of different rules, tensors or sources.
        LimitError: they have too many coordinates.
        DataError: one is damaged.
    """
    from maskreg.flow.overlap.measure import measure_overlap

    with opened(workspace) as space:
        registry = space.registry(remote)
        catalog = registry.index.must_open()
        if kept := catalog.measurements(first, metrics=(COMPARISON,), against=second):
            # The artifacts may be gone since.
            for digest in (first, second):
                if not catalog.has(digest):
                    raise NotFoundError(f"artifact {digest.short} is not in {registry.name}")
            return PairFigures(kept[-1].detail, kept[-1].at, kept=True)
        artifacts = [registry.artifact(digest) for digest in (first, second)]
        for artifact in artifacts:
            artifact.require("mask")
        check_size([artifact.manifest.totals.numel for artifact in artifacts], most_coordinates, (first, second))
        ancestries = [ancestry(artifact, remote=remote, workspace=space) for artifact in artifacts]
        pair = measure_overlap(artifacts, ancestries=ancestries).pairs[0]
        figures = {key: value for key, value in pair.to_json().items() if key not in _LEFT_OUT}
        lift = pair.whole.overlap.lift
        if lift is None:
            return PairFigures(figures, None, kept=False)
        measurement = Measurement(first, COMPARISON, lift, second, detail=figures, by=by or registry.by)
        catalog.record(measurement)
        return PairFigures(figures, measurement.at, kept=False)
