"""Push: publish an artifact on a remote."""

from __future__ import annotations

from maskreg.errors import ConfigError
from maskreg.progress import SILENT, Progress
from maskreg.registry import Registry
from maskreg.registry.transfer.push import Pushed
from maskreg.registry.transfer.push import push as transfer
from maskreg.workspace.arguments import check_arguments
from maskreg.workspace.storing import catalog_step, note_catalog, note_removal
from maskreg.workspace.workspace import ArtifactLike, Workspace, naming, opened


@check_arguments
def push(
    artifact: ArtifactLike,
    *,
    remote: str | None = None,
    tag: str | None = None,
    force: bool = False,
    progress: Progress = SILENT,
    allow_rollback: bool = False,
    workspace: Workspace | None = None,
) -> Pushed:
    """Publish an artifact on a remote.

    Missing objects are transferred first, each one hashed; the tag is set last.

    Args:
        artifact: a reference, or the result that named the artifact.
        remote: name of the remote; the default remote when left out.
        tag: the tag to set on the remote; the local one when left out.
        force: move the remote's tag even when somebody else set it since this machine last pulled or pushed it.
        progress: progress callback, in bytes sent.
        allow_rollback: continue from the remote's tag as it is now, though its log does not continue what this
            machine has seen of it.
        workspace: where the artifact is; by default the local registry of the settings.

    Raises:
        UsageError: the artifact has no name.
        NotFoundError: there is no such artifact.
        PartAbsentError: no part of it is in the local registry.
        CorruptError: it is damaged; nothing damaged was sent.
        ConfigError: there is no such remote, or several and no default; or its catalog has another schema.
        ConflictError: somebody else set the remote's tag since this machine last pulled or pushed it: nothing was sent;
            or it was moved concurrently.
        ImmutableTagError: the remote's tag must not move to another artifact; nothing was sent.
        RolledBackError: its log went back, was rewritten or forked since this machine looked at it.
        UnavailableError: the remote does not answer, or offline is set.
        NotAllowedError: the remote refused the credentials.
    """
    with opened(workspace) as space:
        ref = space.name_of(artifact)
        destination = space.remote(remote)
        _check_catalog(destination)
        remote_ref = ref.with_tag(ref.tag if tag is None else tag)
        with naming(ref), space.tag_of(destination, remote_ref, allow_rollback) as accepted:
            # Whoever takes the tag as it is now knows what it points to.
            force = force or bool(accepted)
            jobs = space.settings.jobs
            pushed = transfer(space.local, destination, ref, tag=tag, force=force, progress=progress, jobs=jobs)
        if pushed.was is not None and pushed.was_at is not None:
            when = f"{pushed.was_at:%Y-%m-%d %H:%M:%S} UTC"
            space.note(
                f"{pushed.ref} on {pushed.remote} moved from {pushed.was.short}, set by {pushed.was_by} at {when}"
            )
        note_removal(space, pushed.ref, pushed.replaces)
        note_catalog(space, destination)
        return pushed


def _check_catalog(remote: Registry) -> None:
    # A catalog of another version could not list what is published, so it stops the push before it starts.
    problem = None if remote.catalog else remote.catalog_problem
    if isinstance(problem, ConfigError):
        raise ConfigError(problem.message, hint=_advice(problem, remote)) from problem


def _advice(problem: ConfigError, remote: Registry) -> str:
    return catalog_step(problem, remote.name) if problem.hint.startswith("maskreg db ") else problem.hint
