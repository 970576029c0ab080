"""Survey: what every two of hundreds of masks share, beside chance, in one pass over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maskreg.checkpoint.roles import ALL, Selection
from maskreg.progress import SILENT, Progress
from maskreg.workspace.engines import engine_of
from maskreg.workspace.several import masks_of
from maskreg.workspace.sources import with_source_if_any
from maskreg.workspace.workspace import ArtifactLike, CheckpointLike, Named, Workspace, opened

if TYPE_CHECKING:
    from maskreg.analysis.survey import Survey
    from maskreg.checkpoint import Checkpoint


@dataclass(frozen=True)
class MaskSurvey:
    """What many masks share.

    Attributes:
        masks: the masks, in the order in which they were given.
        survey: figures of every pair.
        selection: the tensors that were counted.
    """

    masks: tuple[Named, ...]
    survey: Survey
    selection: Selection = ALL

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints: exact numbers, undefined ones null."""
        rows = [{"ref": mask.name, "digest": str(mask.digest)} for mask in self.masks]
        return {"masks": rows, "selection": self.selection.to_json(), **self.survey.to_json()}


def survey(
    *masks: ArtifactLike,
    source: CheckpointLike | None = None,
    download: bool = False,
    require_source: bool = False,
    allow_different: bool = False,
    roles: Sequence[str] = (),
    layers: str = "",
    remote: str | None = None,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> MaskSurvey:
    """Count what every two of many masks share, beside chance by exponent.

    It reads every mask once, and takes about a thousandth of what :func:`compare` takes for each pair. There are no
    intervals and no answers, and chance does not know rows and columns: compare the pairs that matter.

    Args:
        masks: references, digests or open artifacts; ``"team/run:step-*"`` stands for all tags that match it.
        source: the checkpoint that the masks were made from. Without one it is looked for where this machine has
            seen it, then in the hub cache; without any, chance does not know exponents either.
        download: fetch the source from the hub when it is not in the cache.
        require_source: fail without the source.
        allow_different: count what masks of other rules, tensors or sources share.
        roles: count only tensors of these roles (``attention``) and names within their layer (``q_proj``); all by
            default.
        layers: count only these layers, such as ``0-11``; all by default.
        remote: masks of this remote instead of the local registry.
        progress: progress callback, in bytes.
        workspace: where the masks are; by default what the settings say.

    Raises:
        UsageError: fewer than two masks, or more than 1,000; or no tensor is what the selection names.
        NotFoundError: there is no such mask; or the source is required and was not found.
        PairMismatchError: the masks are of different rules, tensors or sources.
        PartAbsentError: a mask is not in the local registry.
        WrongCheckpointError: ``source`` is another checkpoint.
        DataError: an artifact is damaged.
        ConfigError: there is no such remote.
        UnavailableError: the remote does not answer, or offline is set.
    """
    from maskreg.flow.overlap.survey import survey_overlaps

    selection = Selection.parse(roles, layers)
    with opened(workspace) as space, engine_of(space, "survey"):
        operands = masks_of(space, masks, remote, what="a survey", once=True)

        def work(checkpoint: Checkpoint | None) -> Survey:
            return survey_overlaps(
                [operand.artifact for operand in operands],
                checkpoint,
                names=[operand.name for operand in operands],
                allow_different=allow_different,
                selection=selection,
                progress=progress,
            )

        side = operands[0].artifact.manifest.source
        figures = with_source_if_any(space, side, work, source=source, download=download, required=require_source)
        return MaskSurvey(operands, figures, selection)
