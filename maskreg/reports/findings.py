"""The content of a report as values, gathered from artifacts and their source before any text is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat

from maskreg.analysis.comparison import ConsensusPicture, Intersection, PairOverlap
from maskreg.analysis.pairwise import PairMatrix
from maskreg.analysis.papers import TableBeside
from maskreg.analysis.verdict import Outcome, Verdict
from maskreg.artifact.manifest import Manifest, Totals
from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import selected_rows
from maskreg.artifact.totals import totals_of
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.roles import Selection
from maskreg.digest import Digest
from maskreg.errors import UsageError
from maskreg.flow.geometry.exponents import ByExponent, by_exponent
from maskreg.flow.overlap.consensus import picture_consensus
from maskreg.flow.overlap.measure import WHOLE, NamedMask, OverlapSpec, measure_overlap
from maskreg.progress import SILENT, Progress
from maskreg.ref import Card
from maskreg.reports.geometry import Geometry, Trajectory
from maskreg.reports.modules import Grid, grid_of

MOST_COMPARED = 16
"""Masks of a page: 120 pairs."""


@dataclass(frozen=True)
class OtherMask:
    """Another mask, and its overlap with the mask of the report.

    Attributes:
        independent: it comes from a run of its own. The overlap with a baseline, with a combination or with the mask
            itself is no evidence about rounding.
        corrected: the answer of several masks, corrected for the number of pairs; None for two.
    """

    name: str
    overlap: PairOverlap
    independent: bool
    corrected: Outcome | None = None

    @property
    def outcome(self) -> Outcome:
        """The answer."""
        return self.corrected or self.verdict.outcome

    @property
    def verdict(self) -> Verdict:
        """Whether the overlap is more than chance, if these were the only two masks."""
        return self.overlap.verdict


@dataclass(frozen=True)
class Findings:
    """The content of a report.

    Attributes:
        selection: the tensors that all else is of; geometry, trajectory and papers are as they were measured.
        matrix: all masks beside each other; None for two and for one.
        intersections: what of three to six masks lies in exactly some of them, the largest first.
        consensus: of three masks or more, how many hold each coordinate, of every matrix where there are few.
    """

    name: str
    digest: Digest
    card: Card
    manifest: Manifest
    selection: Selection
    totals: Totals
    grid: Grid
    exponents: ByExponent | None
    others: tuple[OtherMask, ...]
    matrix: PairMatrix | None = None
    intersections: tuple[Intersection, ...] = ()
    consensus: tuple[ConsensusPicture, ...] = ()
    geometry: Geometry | None = None
    trajectory: Trajectory | None = None
    papers: tuple[TableBeside, ...] = ()


def gather(
    mask: NamedMask,
    others: Sequence[NamedMask] = (),
    source: Checkpoint | None = None,
    spec: OverlapSpec = WHOLE,
    *,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> Findings:
    """Count what a report needs, streaming: memory does not grow with the model."""
    masks, selection = [mask, *others], spec.selection
    if len(masks) > MOST_COMPARED:
        raise UsageError(f"{len(masks)} masks, and a page compares {MOST_COMPARED} at most", hint="name fewer of them")
    mask.artifact.require("mask")
    rows = selected_rows(mask.artifact, selection)
    exponents = None
    if source:
        exponents = by_exponent(mask.artifact, source, selection=selection, progress=progress, jobs=jobs)
    findings = Findings(
        mask.name,
        mask.artifact.digest,
        mask.card,
        mask.artifact.manifest,
        selection,
        totals_of(rows) if selection else mask.artifact.manifest.totals,
        grid_of(rows),
        exponents,
        (),
    )
    if not others:
        return findings
    comparison = measure_overlap(masks, source, spec, progress=progress, jobs=jobs)
    outcomes = repeat(None) if comparison.matrix is None else comparison.outcomes
    # The report's mask is in the first pairs.
    compared = (
        OtherMask(other.name, pair, _independent(mask.artifact, other.artifact), outcome)
        for other, pair, outcome in zip(others, comparison.pairs, outcomes, strict=False)
    )
    crossed = comparison.intersections
    findings = replace(findings, others=tuple(compared), matrix=comparison.matrix, intersections=crossed)
    if len(masks) == 2:
        return findings
    artifacts, allow_different = [each.artifact for each in masks], spec.allow_different
    pictures = picture_consensus(artifacts, allow_different=allow_different, selection=selection, progress=progress)
    return replace(findings, consensus=pictures)


def _independent(mask: Artifact, other: Artifact) -> bool:
    derived = other.manifest.kind == "baseline" or other.manifest.recipe is not None
    return not derived and str(other.digest) not in (str(mask.digest), *mask.manifest.parents)
