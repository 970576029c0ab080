"""Retrain: train the coordinates of a mask from its source, verify what changed, and store it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskreg.digest import Digest
from maskreg.errors import UsageError
from maskreg.extras import requiring
from maskreg.parallel import is_first
from maskreg.progress import SILENT, Progress
from maskreg.ref import Card, Ref, is_utf8
from maskreg.result import Result
from maskreg.workspace.sources import verified_source
from maskreg.workspace.storing import Naming, remember
from maskreg.workspace.verbs.pull import with_mask
from maskreg.workspace.workspace import ArtifactLike, CheckpointLike, Named, Workspace, as_name, opened

if TYPE_CHECKING:
    from maskreg.train.retrain.folder import RunFolder
    from maskreg.train.retrain.prepare import PreparedRun
    from maskreg.train.retrain.run import StepListener


@dataclass(frozen=True)
class RetrainResult(Result):
    """A complete run.

    Attributes:
        model: the trained checkpoint.
        steps: optimizer steps.
        first_loss: before the first step; None if TRL logged none.
        last_loss: before the last step.
        seconds: of all steps.
        coordinates: of all floating-point tensors.
        trained: coordinates in the mask.
        visible: coordinates whose bf16 code changed.
        density: trained / coordinates.
        visible_density: visible / coordinates.
        outside_mask: coordinates outside the mask that changed, which is always 0.
        notes: remarks for people, one sentence each.
        setup: what decided the result, as in :class:`maskreg.train.retrain.setup.RunSetup`.
        environments: processes, device and library versions, and after which step they began.
        ref: the name of what changed; None if no name was given, as are digest and was.
        digest: of the artifact with what changed.
        was: the artifact that the name pointed to before; None when there was none, or it was this one.
    """

    model: Path
    steps: int
    first_loss: float | None
    last_loss: float | None
    seconds: float
    coordinates: int
    trained: int
    visible: int
    density: float
    visible_density: float
    outside_mask: int
    notes: list[str]
    setup: dict[str, Any]
    environments: list[dict[str, Any]]
    ref: Ref | None = None
    digest: Digest | None = None
    was: Digest | None = None


def retrain(
    artifact: ArtifactLike | None = None,
    *,
    recipe: str,
    data: str | Path,
    out: str | Path,
    source: CheckpointLike | None = None,
    name: str | Ref | None = None,
    force: bool = False,
    listener: StepListener | None = None,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
    **options: Any,
) -> RetrainResult:
    """Train only the coordinates of a mask, starting from its source.

    Coordinates outside the mask keep their bits, and have no optimizer state. TRL trains. A run that was interrupted
    resumes from its last save if it is called with the same options. At the end the model is compared with its source
    bit by bit. Under ``torchrun`` or ``accelerate launch``, every process makes the same call; the first one verifies
    the result, and registers it.

    Args:
        artifact: has the mask; pulled if it is not in the local registry. None to train all coordinates, with
            ``control="full"`` and a source.
        recipe: ``sft``, ``opd`` (on-policy distillation) or ``grpo``.
        data: file with one JSON object per line.
        out: folder of the run; the model appears in ``out/model``.
        name: ``[project/]name[:tag]`` for what changed; without one, no artifact is made.
        listener: called with the metrics of every step: ``step`` of ``steps``, ``seconds``, and what TRL logs.
        options: fields of :class:`maskreg.train.retrain.prepare.RunRequest` by name: ``teacher`` (of opd), ``reward``
            (of grpo) and ``loss`` (of sft, both ``module:function``), ``control`` and ``control_seed``, ``config``,
            ``batch_size`` (records per step, over all processes), ``gradients``, ``dtype`` and ``download``. ``config``
            has keys of TRL's configuration, as a mapping, a YAML file or ``key=value``; its defaults are 100 steps
            (``max_steps``), a save every 50 (``save_steps``), a ``learning_rate`` of 1e-6 and the ``seed`` 0.

    Raises:
        DataError: the source is not the mask's, or something cannot be trained on.
        OutputExistsError: ``out`` holds something else, or another run.
        PairMismatchError: coordinates outside the mask have changed.
        ImmutableTagError: the name must not move: refused before the work, or after it with ``force``.
    """
    with opened(workspace) as space:
        naming = Naming(space, None if name is None else as_name(name), careful=not force)
        options |= {"recipe": recipe, "data": Path(data)}
        folder, prepared, named = _prepared(space, artifact, source, out, progress, options)
        derived = Card(named.card.family if named else "", recipe).checked()

        from maskreg.train.retrain.verdict import complete, store

        if not is_first():
            pass
        elif folder.summary() is not None:
            space.note(f"{folder.path} is complete already")
        elif (latest := folder.latest_save(prepared.setup.steps)) is not None:
            space.note(f"resuming after step {latest[0]} of {prepared.setup.steps}")
        figures = {**complete(folder, prepared, listener, progress=progress), "model": folder.model}
        if naming.ref is not None and is_first():
            extracted = store(folder, prepared, space.root, progress=progress)
            stored = naming.store(extracted.digest, Card(), derived=derived)
            remember(space, stored.artifact.manifest.target.root, folder.model)
            figures |= {"ref": stored.ref, "digest": stored.digest, "was": stored.was}
        return RetrainResult(**figures)


def plan(
    artifact: ArtifactLike | None = None,
    *,
    recipe: str,
    data: str | Path,
    out: str | Path,
    source: CheckpointLike | None = None,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Check a run as :func:`retrain` does, and say what it would train and need.

    Arguments and errors: see :func:`retrain`.

    Returns:
        Coordinates, bytes of weights, optimizer state and gradients, steps, records and the setup.
    """
    with opened(workspace) as space:
        options |= {"recipe": recipe, "data": Path(data)}
        _, prepared, _ = _prepared(space, artifact, source, out, progress, options)

        from maskreg.train.retrain.verdict import plan as plan_run

        with space.checkpoint(prepared.source) as checkpoint:
            return plan_run(prepared, checkpoint)


def _prepared(
    workspace: Workspace,
    given: ArtifactLike | None,
    source: CheckpointLike | None,
    out: str | Path,
    progress: Progress,
    options: dict[str, Any],
) -> tuple[RunFolder, PreparedRun, Named | None]:
    """A run that passes all checks, its folder, and the artifact that was given."""
    with requiring("training", "train"):
        from maskreg.train.retrain.folder import RunFolder
        from maskreg.train.retrain.prepare import FULL, RunRequest, prepare

    folder = RunFolder(Path(out))
    folder.has_run()  # before anything is searched or read
    request = RunRequest(**options)
    named = None if given is None else with_mask(workspace, given)
    artifact = named.artifact if named else None
    if artifact is None and (request.control != FULL or source is None):
        hint = "name one; or train all coordinates of a source with the control full"
        raise UsageError("no mask to train was named", hint=hint)
    if source is None:
        assert artifact is not None
        source = verified_source(workspace, artifact, download=request.download)
    with workspace.checkpoint(source, download=request.download) as checkpoint:
        for path in map(str, (folder.path, checkpoint.path, request.teacher)):
            if not is_utf8(path):
                raise UsageError(f"{path}: TRL needs paths in UTF-8", hint="rename it, or choose another")
        prepared = prepare(request, artifact, checkpoint, workspace.root, progress=progress)
        remember(workspace, prepared.setup.source, checkpoint.path)
    folder.check(prepared.setup)
    for note in prepared.notes:
        workspace.note(note)
    return folder, prepared, named
