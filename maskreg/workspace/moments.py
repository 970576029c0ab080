"""Moments: figures of an optimizer's state, beside the update that it has made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskreg.checkpoint.roles import Selection
from maskreg.progress import SILENT, Progress
from maskreg.workspace.engines import engine_of
from maskreg.workspace.sources import with_source
from maskreg.workspace.workspace import ArtifactLike, CheckpointLike, Workspace, opened

if TYPE_CHECKING:
    from maskreg.checkpoint import Checkpoint


def moments(
    state: str | Path,
    artifact: ArtifactLike | None = None,
    source: CheckpointLike | None = None,
    *,
    roles: Sequence[str] = (),
    layers: str = "",
    download: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> dict[str, Any]:
    """Measure the state of Adam that a run saved: how unequal second moments are, and where the first ones point.

    Nothing is stored.

    Args:
        state: what the optimizer was saved to: a file of ``torch.save``, a distributed checkpoint, a folder with
            ``optimizer.pt``, or safetensors with names that end in ``exp_avg`` and ``exp_avg_sq``.
        artifact: the update at whose end the state was saved; without one, what needs it is left out.
        source: the checkpoint that the artifact was made from. Without one, it is looked for where this machine has
            seen it, then in the hub cache.
        roles: measure only tensors of these roles and names; see :func:`maskreg.analyze`.
        layers: measure only these layers.
        download: fetch a source from the hub that is not in the cache.
        progress: progress callback, in bytes of second moments.
        workspace: by default what the settings say.

    Returns:
        Figures of all weights, by role, by layer and of every weight, as JSON values.

    Raises:
        UsageError: no weight is what the selection names.
        NotFoundError: there is no such state, artifact or checkpoint.
        FormatError: there is no state of Adam in what was named.
        PartAbsentError: the artifact holds no values.
        WrongCheckpointError: ``source`` is not the checkpoint that the artifact was made from.
    """
    from maskreg.checkpoint.moments import open_moments
    from maskreg.flow.geometry.momentum import measure_moments

    selection = Selection.parse(roles, layers)
    with opened(workspace) as space, engine_of(space, "analyze"), open_moments(state) as opened_state:
        if artifact is None:
            return measure_moments(opened_state, selection=selection, progress=progress)
        update = space.find(artifact).artifact

        def work(checkpoint: Checkpoint) -> dict[str, Any]:
            return measure_moments(opened_state, update, checkpoint, selection=selection, progress=progress)

        return with_source(space, update.manifest.source, work, source=source, download=download)[0]
