"""Retrain: train the coordinates of a mask from its source, verify what changed, and store it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskreg.digest import Digest
from maskreg.errors import FormatError, NotFoundError, UsageError
from maskreg.extras import requiring
from maskreg.progress import SILENT, Progress
from maskreg.ref import Card, Ref
from maskreg.result import Result
from maskreg.workspace.sources import sources
from maskreg.workspace.storing import Naming, Stored, remember
from maskreg.workspace.verbs.pull import pull
from maskreg.workspace.workspace import ArtifactLike, CheckpointLike, Named, Workspace, as_name, opened

if TYPE_CHECKING:
    from maskreg.train.retrain.prepare import PreparedRun, RunRequest
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
    notes: tuple[str, ...]
    setup: dict[str, Any]
    environments: tuple[dict[str, Any], ...]
    ref: Ref | None = None
    digest: Digest | None = None
    was: Digest | None = None

    @classmethod
    def of(cls, summary: Mapping[str, Any], stored: Stored | None) -> RetrainResult:
        """The result of a run with this summary, and of what was stored of it.

        Raises:
            FormatError: a figure is missing.
        """
        own = {field.name for field in fields(cls)} - {"ref", "digest", "was"}
        if missing := sorted(own - summary.keys()):
            raise FormatError(f"summary.json: {missing[0]!r} is missing", hint="choose another -o")
        figures: dict[str, Any] = {name: summary[name] for name in own}
        figures |= {
            "model": Path(summary["model"]),
            "notes": tuple(summary["notes"]),
            "environments": tuple(summary["environments"]),
        }
        if stored is not None:
            figures |= {"ref": stored.ref, "digest": stored.digest, "was": stored.was}
        return cls(**figures)


def retrain(
    artifact: ArtifactLike | None = None,
    *,
    recipe: str,
    data: str | Path,
    out: str | Path,
    source: CheckpointLike | None = None,
    name: str | Ref | None = None,
    force: bool = False,
    torchrun: Sequence[str] = (),
    listener: StepListener | None = None,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
    **options: Any,
) -> RetrainResult:
    """Train only the coordinates of a mask, starting from its source.

    Coordinates outside the mask keep their bits, and have no optimizer state. TRL trains. A run that was interrupted
    resumes from its last save if it is called with the same options. At the end the model is compared with its source
    bit by bit.

    Args:
        artifact: has the mask; pulled if it is not in the local registry. None to train all coordinates, with
            ``control="full"`` and a source.
        recipe: ``sft``, ``opd`` (on-policy distillation) or ``grpo``.
        data: file with one JSON object per line.
        out: folder of the run; the model appears in ``out/model``.
        source: the checkpoint to train; by default it is looked for where this machine has seen it, then in the hub
            cache.
        name: ``[project/]name[:tag]`` for what changed; without one, no artifact is made.
        force: move a name that others may use: one that was pulled or pushed, or that another user has set. Its
            history keeps the old artifact.
        torchrun: options for torchrun; without any, this process trains.
        listener: called with the metrics of every step: ``step`` of ``steps``, ``loss``, ``lr`` and what else TRL logs.
        progress: progress callback, in bytes.
        workspace: where artifacts and known checkpoints are; by default what the settings say.
        options: by name: ``teacher`` (of opd), ``reward`` (of grpo) and ``loss`` (of sft, both ``module:function``),
            ``config`` (other keys of TRL's configuration, as a mapping or a YAML file), ``control``,
            ``control_seed``, ``save_every``, ``download``; ``steps``, ``batch_size``, ``lr``, ``seed``,
            ``optimizer``, ``gradients``, ``dtype``, ``max_length`` and ``max_new_tokens`` as in
            :class:`maskreg.train.retrain.setup.RunSetup`.

    Raises:
        UsageError: options that contradict each other or make no sense.
        NotFoundError: an artifact, a checkpoint or a file does not exist.
        DataError: the source is not the mask's, or something cannot be trained on.
        OutputExistsError: ``out`` holds something else, or another run.
        PairMismatchError: coordinates outside the mask have changed.
        ConflictError: others may use the name, and ``force`` is not set: nothing was made; or it was moved
            concurrently, and the artifact is kept.
        ImmutableTagError: the name must not move: refused before the work, or after it with ``force``.
        ConfigError: what TRL needs is not installed, or is too old.
    """
    with requiring("training", "train"):
        from maskreg.train.retrain.folder import RunFolder
        from maskreg.train.retrain.prepare import RunRequest
        from maskreg.train.retrain.verdict import complete, store

    folder = RunFolder(Path(out))
    folder.has_run()  # before anything is searched or read
    request = RunRequest.of(recipe, data, **options)
    with opened(workspace) as space:
        named = None if artifact is None else _with_mask(space, artifact)
        naming = Naming(space, None if name is None else as_name(name), careful=not force)
        prepared = _prepared(space, named, source, request, progress)
        folder.check(prepared.setup)
        if folder.summary() is not None:
            space.note(f"{folder.path} is complete already")
        elif (latest := folder.latest_save()) is not None:
            space.note(f"resuming after step {latest[0]} of {prepared.setup.steps}")
        summary = complete(folder, prepared, torchrun, listener, progress=progress)
        stored = None
        if naming.ref is not None:
            extracted = store(folder, prepared, progress=progress)
            card = Card(named.card.family if named else "", recipe).checked()
            stored = naming.store(extracted.digest, naming.card_for(extracted.digest, card))
            remember(space, stored.artifact.manifest.target.root, folder.model)
        return RetrainResult.of(summary, stored)


def plan(
    artifact: ArtifactLike | None = None,
    *,
    recipe: str,
    data: str | Path,
    out: str | Path | None = None,
    source: CheckpointLike | None = None,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Check a run as :func:`retrain` does, and say what it would train and need.

    Arguments and errors: see :func:`retrain`; ``out`` can be left open.

    Returns:
        Coordinates, bytes of weights, optimizer state and gradients, steps, records and the setup.
    """
    with requiring("training", "train"):
        from maskreg.train.retrain.folder import RunFolder
        from maskreg.train.retrain.prepare import RunRequest
        from maskreg.train.retrain.verdict import plan as plan_run

    if out is not None:
        RunFolder(Path(out)).has_run()
    request = RunRequest.of(recipe, data, **options)
    with opened(workspace) as space:
        named = None if artifact is None else _with_mask(space, artifact)
        prepared = _prepared(space, named, source, request, progress)
        with space.checkpoint(prepared.paths.source) as checkpoint:
            return plan_run(prepared, checkpoint)


def _with_mask(workspace: Workspace, artifact: ArtifactLike) -> Named:
    """An artifact with its mask, from the local registry or else pulled into it."""
    try:
        named = workspace.find(artifact)
        named.artifact.require("mask")
        return named
    except NotFoundError:
        ref = workspace.parse(artifact)
        if not isinstance(ref, Ref) or workspace.remote_to_ask() is None:
            raise
    return pull(ref, parts=("mask",), workspace=workspace)


def _prepared(
    workspace: Workspace,
    named: Named | None,
    source: CheckpointLike | None,
    request: RunRequest,
    progress: Progress,
) -> PreparedRun:
    from maskreg.parallel import worker_count
    from maskreg.train.retrain.prepare import FULL, prepare
    from maskreg.update.verified import VerifiedSource

    artifact = named.artifact if named else None
    if artifact is None and request.control != FULL:
        raise UsageError("no mask to train was named", hint="name one, or train all coordinates with the control full")
    if source is None:
        if artifact is None:
            raise UsageError("training without a mask needs a source", options={"source": "PATH"})
        for attempt in sources(workspace, artifact.manifest.source, download=request.download):
            with attempt as found:
                VerifiedSource(artifact, found, jobs=worker_count(None))
        source = found.path
    with workspace.checkpoint(source, download=request.download) as checkpoint:
        prepared = prepare(request, artifact, checkpoint, workspace.root, progress=progress)
        remember(workspace, prepared.setup.source, checkpoint.path)
    for note in prepared.notes:
        workspace.note(note)
    return prepared
