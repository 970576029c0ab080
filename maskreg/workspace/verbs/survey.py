"""Survey: what every two of hundreds of masks share, beside chance, in one pass over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maskreg.checkpoint.roles import ALL, Selection
from maskreg.progress import SILENT, Progress
from maskreg.workspace.several import masks_of
from maskreg.workspace.sources import sources_if_any
from maskreg.workspace.workspace import ArtifactLike, CheckpointLike, Named, Workspace, opened

if TYPE_CHECKING:
    from maskreg.analysis.survey import Survey


@dataclass(frozen=True)
class MaskSurvey:
    """What many masks share.

    Attributes:
        masks: the masks, in the order in which they were given.
        survey: figures of every pair.
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
        source: the checkpoint that the masks were made from. Without one it is looked for where this machine has
            seen it, then in the hub cache; without any, chance does not know exponents either.

    Raises:
        UsageError: fewer than two masks, or more than 1,000; or no tensor is what the selection names.
    """
    from maskreg.flow.overlap.survey import survey_overlaps

    selection = Selection.parse(roles, layers)
    with opened(workspace) as space:
        operands = masks_of(space, masks, remote, what="a survey", once=True)
        side = operands[0].artifact.manifest.source
        for attempt in sources_if_any(space, side, source=source, download=download, required=require_source):
            with attempt as checkpoint:
                figures = survey_overlaps(
                    [operand.artifact for operand in operands],
                    checkpoint,
                    names=[operand.name for operand in operands],
                    allow_different=allow_different,
                    selection=selection,
                    progress=progress,
                )
        return MaskSurvey(operands, figures, selection)
