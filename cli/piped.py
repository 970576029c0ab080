"""The artifact of a command that takes a reference, or ``-`` for the one that a pipe names."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from maskreg.digest import Digest
from maskreg.errors import NotFoundError, PipeError
from maskreg.ref import Card, Ref, ShortDigest

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact
    from maskreg.progress import Progress
    from maskreg.workspace.workspace import Named, Workspace

    from .pipe import Record


def named_or_piped(workspace: Workspace, text: str, progress: Progress) -> Named:
    """Open the artifact that an argument names; of ``-`` the one that a pipe names, pulled where it has to be.

    Args:
        workspace: where the artifact is.
        text: what was typed.
        progress: progress callback, in bytes read.

    Raises:
        PipeError: the pipe does not name exactly one artifact, or the command before it failed.
        NotFoundError: there is no such artifact.
        DataError: it is damaged.
    """
    if text != "-":
        return workspace.find(text)
    from maskreg.workspace.workspace import Named

    from .pipe import MAX_BYTES, read

    # Read to the end before anything is touched: only the end record says that the upstream command succeeded.
    command = click.get_current_context().info_name or ""
    record = read(sys.stdin.buffer.read(MAX_BYTES + 1), command)
    if isinstance(record, Ref | Digest | ShortDigest):
        return workspace.find(record)
    artifact = _recorded(workspace, record, progress)
    record.check(artifact.manifest, command)
    return Named(Ref.parse(record.ref), artifact, Card())


def _recorded(workspace: Workspace, record: Record, progress: Progress) -> Artifact:
    digest = Digest(record.digest)
    try:
        return workspace.local.artifact(digest)
    except NotFoundError:
        # A remote's name from the pipe may be looked up in this machine's settings; an address from it is never used.
        if record.remote not in workspace.settings.remotes:
            _refuse_another(workspace, record, digest)
            raise
    from maskreg.workspace.pull import pull

    pinned = replace(Ref.parse(record.ref), digest=digest)
    return pull(pinned, remote=record.remote, to_apply=True, progress=progress, workspace=workspace).artifact


def _refuse_another(workspace: Workspace, record: Record, digest: Digest) -> None:
    try:
        local = workspace.local.resolve(replace(Ref.parse(record.ref), digest=None)).digest
    except NotFoundError:
        return
    raise PipeError(
        f"the record says that {record.ref} is {digest.short}, and in the local registry it is {local.short}",
        hint=f"maskreg pull {record.ref} | maskreg {click.get_current_context().info_name}",
    )
