"""Compare: the overlap of masks, beside chance and rounding; and keeping it as a measurement."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

from maskreg.analysis.comparison import Comparison
from maskreg.analysis.verdict import Start
from maskreg.checkpoint.roles import ALL, Selection
from maskreg.errors import UsageError
from maskreg.progress import SILENT, Progress
from maskreg.result import plain
from maskreg.words import counted
from maskreg.workspace.lineage import ancestry
from maskreg.workspace.several import masks_of
from maskreg.workspace.sources import SourceOptions, sources_if_any
from maskreg.workspace.verbs.recording import record as record_overlaps
from maskreg.workspace.workspace import ArtifactLike, Named, Workspace, opened, split_options

if TYPE_CHECKING:
    from maskreg.analysis.updates import UpdatePair
    from maskreg.catalog import Measurement
    from maskreg.flow.overlap.measure import NamedMask, OverlapSpec


Group = Literal["role", "layer", "module", "tensor"]
"""What tensors are grouped by."""

MANY = 32
"""Masks from which on all pairs take so long that it is said."""

START = "start"
"""Key of a card's metadata that says whether training started at the source, bit for bit: yes, no or unknown."""


@dataclass(frozen=True, repr=False)
class MaskComparison(Comparison):
    """What masks share: ``pairs`` in the order of the masks, and of three masks or more ``matrix`` and ``consensus``.

    Attributes:
        masks: the masks, in the order in which they were given.
        recorded: measurements that were stored in the catalog.
        updates: the directions of every pair of updates; empty unless requested.
    """

    masks: tuple[Named, ...] = ()
    recorded: tuple[Measurement, ...] = ()
    notes: tuple[str, ...] = ()
    selection: Selection = ALL
    updates: tuple[UpdatePair, ...] = ()

    def __repr__(self) -> str:
        sentence = self.pairs[0].verdict.sentence if self.matrix is None else self.matrix.sentence
        return f"<MaskComparison of {counted(len(self.masks), 'mask')}: {sentence}>"

    def to_json(self) -> dict[str, Any]:
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
        return {
            "masks": rows,
            "selection": self.selection.to_json(),
            **super().to_json(),
            "updates": [pair.to_json() for pair in self.updates],
            "recorded": plain(self.recorded),
        }


class MaskOptions(SourceOptions, total=False):
    """Which tensors of masks are counted, and beside which source."""

    require_source: bool
    allow_different: bool
    roles: Sequence[str]
    layers: str


class CompareOptions(MaskOptions, total=False):
    """What of masks is compared.

    Attributes:
        stripes: count rows and columns of matrices that move together.
        smallest_effect: the smallest headroom that matters to the verdict, 0 to 1; 0.01 by default.
        by: the groups of tensors that pairs have figures of, where there are more than eight masks. Pairs of fewer
            masks have figures of all groups.
        groups: the groups that pairs have figures of, however many masks there are; each takes time.
    """

    stripes: bool
    smallest_effect: float
    by: Group | None
    groups: Collection[Group] | None


def compare(
    *masks: ArtifactLike,
    start: Start | None = None,
    record: bool = False,
    updates: bool = False,
    remote: str | None = None,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
    **options: Unpack[CompareOptions],
) -> MaskComparison:
    """Measure what two or more masks share, beside chance and rounding.

    Any two updates share coordinates, because bf16 rounding lets small weights move first. Without the source, the
    figures that need it are undefined.

    Args:
        start: whether training of one run or more started at the source, bit for bit: ``yes``, ``no`` or ``unknown``.
            Off the bf16 grid, as in a resumed run, two updates share more by chance. By default what the cards say.
        record: keep the lift in the catalog, as a measurement of the first mask of each pair; see :func:`keep`.
        updates: measure the angle between updates too, and the MLP channels that they move most. Needs the source,
            and artifacts with values.

    Raises:
        UsageError: fewer than two masks, an effect that is no share, or no tensor is what the selection names.
    """
    from maskreg.flow.geometry.updates import compare_updates
    from maskreg.flow.overlap.measure import measure_overlap

    spec, find = spec_and_source(options, CompareOptions)
    with opened(workspace) as space:
        operands = masks_of(space, masks, remote, what="a comparison")

        if len(operands) > MANY:
            pairs = counted(len(operands) * (len(operands) - 1) // 2, "pair")
            space.note(f"{pairs} with intervals and answers take long; fewer checkpoints of a run often tell enough")
        compared = [named_mask(space, operand, start, remote) for operand in operands]
        artifacts, names = [mask.artifact for mask in compared], [mask.name for mask in compared]
        side, required = operands[0].artifact.manifest.source, spec.require_source or updates
        moves: tuple[UpdatePair, ...] = ()
        for attempt in sources_if_any(space, side, required=required, **find):
            with attempt as checkpoint:
                if updates and checkpoint is not None:
                    moves = compare_updates(artifacts, checkpoint, names, selection=spec.selection, progress=progress)
                comparison = measure_overlap(compared, checkpoint, spec, progress=progress)
        result = MaskComparison(**vars(comparison), masks=operands, selection=spec.selection, updates=moves)
        return keep(result, workspace=space) if record else result


def spec_and_source(options: MaskOptions, kind: type[MaskOptions] = MaskOptions) -> tuple[OverlapSpec, dict[str, Any]]:
    """What is compared, and where its source is."""
    from maskreg.flow.overlap.measure import OverlapSpec

    find, rest = split_options(options, SourceOptions, kind)
    selection = Selection.parse(rest.pop("roles", ()), rest.pop("layers", ""))
    return OverlapSpec(selection, **rest), find


def named_mask(space: Workspace, mask: Named, start: Start | None = None, remote: str | None = None) -> NamedMask:
    """A mask with what is known of its past."""
    from maskreg.flow.overlap.measure import NamedMask

    if start not in (None, *get_args(Start)):
        raise UsageError(f"start is {start!r}", hint=f"give one of {', '.join(get_args(Start))}")
    past = ancestry(mask.artifact, remote=remote, workspace=space)
    return NamedMask(mask.name, mask.artifact, mask.card, start or _start_of(mask), past)


def _start_of(mask: Named) -> Start:
    """Whether training of a mask started at its source, as its card says (``start=yes`` in its metadata).

    A mask that was drawn, and not trained, knows of a weight what its code says, as training from the grid does; a
    part of a trained mask, or all outside it, knows what that did. A source that is not stored in bf16 is off the grid
    even if a card says otherwise.
    """
    manifest = mask.artifact.manifest
    if manifest.kind == "baseline" and (manifest.recipe or {}).get("kind") not in ("subset", "complement"):
        return "yes"
    if any(dtype != "BF16" for dtype in manifest.source.dtypes):
        return "no"
    match mask.card.meta.get(START):
        case "yes":
            return "yes"
        case "no":
            return "no"
    return "unknown"


def keep(result: MaskComparison, *, workspace: Workspace | None = None) -> MaskComparison:
    """Record a comparison in the catalog, for ``show`` and ``list``.

    Every pair becomes a measurement ``overlap`` of its first mask: the lift. It becomes ``rlvr_overlap`` too when
    the second mask is what the source's ``rlvr-reference`` tag points to, and ``seed_overlap`` of both for two seeds
    of one family and method. Where only some tensors were compared, the measurements say which (``by_group``), and
    ``show`` and ``list``, which tell of whole masks, leave them out.

    Returns:
        The comparison, with what was recorded, and notes about what could not be.

    Raises:
        MaskregError: there is no catalog, or it cannot be written.
    """
    with opened(workspace) as space:
        recorded, notes = record_overlaps(space.local, result, result.masks, result.selection)
    return replace(result, recorded=recorded, notes=notes)
