"""Compare: the overlap of masks, beside chance and rounding; and keeping it as a measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from maskreg.analysis.verdict import SMALLEST, Start
from maskreg.errors import UsageError
from maskreg.progress import SILENT, Progress
from maskreg.result import plain
from maskreg.workspace.arguments import check_arguments
from maskreg.workspace.recording import record as record_overlaps
from maskreg.workspace.sources import with_source_if_any
from maskreg.workspace.workspace import ArtifactLike, CheckpointLike, Named, Workspace, naming, opened

if TYPE_CHECKING:
    from maskreg.analysis.comparison import Comparison, PairOverlap
    from maskreg.analysis.consensus import Consensus
    from maskreg.analysis.stripes import Stripes
    from maskreg.catalog import Measurement
    from maskreg.checkpoint import Checkpoint


START = "start"
"""Key of a card's metadata that says whether training started at the source, bit for bit: yes, no or unknown."""


@dataclass(frozen=True)
class MaskComparison:
    """What masks share.

    Attributes:
        masks: the masks, in the order in which they were given.
        comparison: figures of every pair, consensus and stripes.
        recorded: measurements that were stored in the catalog.
        notes: what could not be recorded, one sentence each.
    """

    masks: tuple[Named, ...]
    comparison: Comparison
    recorded: tuple[Measurement, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def pairs(self) -> tuple[PairOverlap, ...]:
        """The overlap of every pair, in the order of the masks."""
        return self.comparison.pairs

    @property
    def consensus(self) -> Consensus | None:
        """How many coordinates are in how many masks; None for two masks."""
        return self.comparison.consensus

    @property
    def stripes(self) -> tuple[Mapping[str, Stripes], ...]:
        """For each mask, the rows and columns of its matrices that move together, by name; empty unless requested."""
        return self.comparison.stripes

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, figures and bars of a report for every pair."""
        from maskreg.reports.notebook import overlaps_html

        return overlaps_html(self.pairs)

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints: exact numbers, undefined ones null."""
        rows = [
            {
                "ref": mask.name,
                "digest": str(mask.digest),
                "kind": mask.artifact.manifest.kind,
                "rule": mask.artifact.manifest.rule,
                "source": mask.artifact.manifest.source.root,
            }
            for mask in self.masks
        ]
        return {"masks": rows, **self.comparison.to_json(), "recorded": plain(self.recorded)}


@check_arguments
def compare(
    *masks: ArtifactLike,
    source: CheckpointLike | None = None,
    download: bool = False,
    require_source: bool = False,
    stripes: bool = False,
    allow_different: bool = False,
    record: bool = False,
    smallest_effect: float = SMALLEST,
    start: Start | None = None,
    remote: str | None = None,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> MaskComparison:
    """Measure what two or more masks share, beside chance and rounding.

    Any two updates share coordinates, because bf16 rounding lets small weights move first. Without the source, the
    figures that need it are undefined.

    Args:
        masks: references, digests or open artifacts.
        source: the checkpoint that the masks were made from. Without one it is looked for where this machine has
            seen it, then in the hub cache.
        download: fetch the source from the hub when it is not in the cache.
        require_source: fail without the source.
        stripes: count rows and columns of matrices that move together.
        allow_different: compare what masks of other rules, tensors or sources share.
        record: keep the lift in the catalog, as a measurement of the first mask of each pair; see :func:`record`.
        smallest_effect: the smallest headroom that matters to the verdict, 0 to 1.
        start: whether training started at the source, bit for bit: ``yes``, ``no`` or ``unknown``. Off the bf16 grid,
            as in a resumed run, two updates share more by chance. By default what the cards of both masks say.
        remote: compare masks of this remote instead of the local registry.
        progress: progress callback, in bytes.
        workspace: where the masks are; by default what the settings say.

    Raises:
        UsageError: fewer than two masks, or an effect that is no share.
        NotFoundError: there is no such mask; or the source is required and was not found.
        PairMismatchError: the masks are of different rules, tensors or sources.
        PartAbsentError: a mask is not in the local registry.
        WrongCheckpointError: ``source`` is another checkpoint.
        ConfigError: there is no such remote.
        UnavailableError: the remote does not answer, or offline is set.
    """
    from maskreg.flow.overlap.measure import measure_overlap

    if len(masks) < 2:
        raise UsageError("a comparison needs two masks or more")
    if not 0 <= smallest_effect < 1:
        raise UsageError(f"the smallest effect that matters is {smallest_effect}", hint="give a share, such as 0.01")
    with opened(workspace) as space:
        operands = tuple(space.find(mask, remote) for mask in masks)
        for operand in operands:
            with naming(operand.name):
                operand.artifact.require("mask")

        def work(checkpoint: Checkpoint | None) -> Comparison:
            return measure_overlap(
                [operand.artifact for operand in operands],
                checkpoint,
                names=[operand.name for operand in operands],
                allow_different=allow_different,
                require_source=require_source,
                stripes=stripes,
                smallest=smallest_effect,
                start=start or start_of(operands),
                progress=progress,
            )

        side = operands[0].artifact.manifest.source
        comparison = with_source_if_any(space, side, work, source=source, download=download, required=require_source)
        result = MaskComparison(operands, comparison)
        return keep(result, workspace=space) if record else result


def start_of(masks: Sequence[Named]) -> Start:
    """Whether training of all masks started at their source, as their cards say (``start=yes`` in their metadata).

    A mask that was drawn, and not trained, knows of a weight what its code says, as training from the grid does. A
    source that is not stored in bf16 is off the grid whatever a card says.
    """
    said = {_start(mask) for mask in masks}
    return "no" if "no" in said else "unknown" if "unknown" in said else "yes"


def _start(mask: Named) -> str:
    manifest = mask.artifact.manifest
    if manifest.kind == "baseline":
        return "yes"
    if any(dtype != "BF16" for dtype in manifest.source.dtypes):
        return "no"
    said = mask.card.meta.get(START, "unknown")
    return said if said in ("yes", "no") else "unknown"


def keep(result: MaskComparison, *, workspace: Workspace | None = None) -> MaskComparison:
    """Record a comparison in the catalog, for ``show`` and ``list``.

    Every pair becomes a measurement ``overlap`` of its first mask: the lift. It becomes ``rlvr_overlap`` too when
    the second mask is what the source's ``rlvr-reference`` tag points to, and ``seed_overlap`` of both for two seeds
    of one family and method.

    Returns:
        The comparison, with what was recorded, and notes about what could not be.

    Raises:
        MaskregError: there is no catalog, or it cannot be written.
    """
    with opened(workspace) as space:
        recorded, notes = record_overlaps(space.local, result.comparison, result.masks)
    return replace(result, recorded=recorded, notes=notes)
