"""What a report says, as values: gathered from artifacts and their source before a word of it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maskreg.analysis.comparison import PairOverlap
from maskreg.analysis.verdict import Verdict
from maskreg.artifact.manifest import Manifest
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint.base import Checkpoint
from maskreg.digest import Digest
from maskreg.flow.geometry.exponents import ByExponent, by_exponent
from maskreg.flow.overlap.measure import measure_overlap
from maskreg.progress import SILENT, Progress
from maskreg.ref import Card
from maskreg.report.geometry import Geometry, Trajectory
from maskreg.report.modules import Grid, grid_of


@dataclass(frozen=True)
class Named:
    """An artifact as people call it.

    Attributes:
        name: its reference, or the digest when it has none.
        artifact: opened; its mask part is here.
        card: what people say about it.
    """

    name: str
    artifact: Artifact
    card: Card


@dataclass(frozen=True)
class Against:
    """Another mask that this one was compared with.

    Attributes:
        name: what people call it.
        card: what they say about it.
        comparison: the figures.
        independent: it was made by a run of its own. What a baseline, a combination or the mask itself shares with the
            mask says nothing of rounding.
    """

    name: str
    card: Card
    comparison: PairOverlap
    independent: bool

    @property
    def verdict(self) -> Verdict:
        """What the figures amount to."""
        return self.comparison.verdict


@dataclass(frozen=True)
class Findings:
    """Everything that a report says.

    Attributes:
        name: what people call the artifact.
        digest: its identity.
        card: what people say about it.
        manifest: what it is.
        grid: density by layer and module.
        exponents: density by magnitude; None when the source is not at hand.
        against: comparisons, in the order in which they were asked for.
        geometry: of the update, when it was analyzed.
        trajectory: how the update grew, when that was followed.
    """

    name: str
    digest: Digest
    card: Card
    manifest: Manifest
    grid: Grid
    exponents: ByExponent | None
    against: tuple[Against, ...]
    geometry: Geometry | None = None
    trajectory: Trajectory | None = None


def gather(
    mask: Named,
    others: Sequence[Named] = (),
    source: Checkpoint | None = None,
    *,
    allow_different: bool = False,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> Findings:
    """Count what a report needs, streaming: memory does not grow with the model.

    Args:
        mask: what the report is about.
        others: masks to compare it with.
        source: the checkpoint that they were made from; None leaves out what needs it.
        allow_different: compare masks of different rules or tensors on what they share.
        progress: told about bytes.
        jobs: threads; by default what the machine has.

    Raises:
        PairMismatchError: masks that cannot be compared.
        PartAbsentError: a mask is not here.
        WrongCheckpointError: the source is another one.
    """
    mask.artifact.require("mask")
    exponents = by_exponent(mask.artifact, source, progress=progress, jobs=jobs) if source else None
    against = []
    for other in others:
        pair, names = (mask.artifact, other.artifact), (mask.name, other.name)
        found = measure_overlap(
            pair, source, names=names, allow_different=allow_different, progress=progress, jobs=jobs
        ).pairs[0]
        against.append(Against(other.name, other.card, found, _independent(*pair)))
    return Findings(
        mask.name,
        mask.artifact.digest,
        mask.card,
        mask.artifact.manifest,
        grid_of(mask.artifact.tensors),
        exponents,
        tuple(against),
    )


def _independent(mask: Artifact, other: Artifact) -> bool:
    derived = other.manifest.kind == "baseline" or other.manifest.recipe is not None
    return not derived and str(other.digest) not in (str(mask.digest), *mask.manifest.parents)
