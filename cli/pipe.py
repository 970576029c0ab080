"""What goes through ``maskreg pull ... | maskreg apply``: one JSON record per artifact, then an end record."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import click
import msgspec

from maskreg.artifact.manifest import Manifest, Sha256
from maskreg.digest import Digest
from maskreg.document import checked, parse_object
from maskreg.errors import BadRefError, DataError, FormatError, NotFoundError, PipeError
from maskreg.extras import upgrade_command
from maskreg.ref import Card, Ref, ShortDigest, parse_artifact
from maskreg.words import counted
from maskreg.workspace import verbs

from .next_step import ARGUMENTS

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact
    from maskreg.progress import Progress
    from maskreg.workspace.workspace import Named, Workspace


REF_SCHEMA = "maskreg.ref/1"
END_SCHEMA = "maskreg.end/1"
MAX_BYTES = 16 << 20
"""Maximum size of the piped input in bytes."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One artifact, as ``pull`` announces it; what else a line says is for people and other programs.

    Attributes:
        ref: the reference that was asked for.
        digest: the artifact.
        remote: name of the remote it came from; empty when it was local.
    """

    ref: str
    digest: Sha256
    remote: Annotated[str, msgspec.Meta(max_length=255)] = ""


def record(ref: Ref, digest: Digest, manifest: Manifest, *, path: str, remote: str) -> dict[str, object]:
    """The record of one artifact."""
    side = manifest.source
    return {
        "schema": REF_SCHEMA,
        "ref": str(ref),
        "digest": str(digest),
        "kind": manifest.kind,
        "size": manifest.size,
        "source": {"root": side.root, "hub": side.hub, "params": side.params},
        "path": path,
        "remote": remote,
    }


def end(count: int, error: dict[str, object] | None = None) -> dict[str, object]:
    """The end record: how many came before it, and how it went."""
    if error is None:
        return {"schema": END_SCHEMA, "count": count, "status": "ok"}
    failure = {"code": error["code"], "exit": error["exit"], "error": error}
    return {"schema": END_SCHEMA, "count": count, "status": "error", **failure}


def read(data: bytes) -> Record | Ref | Digest | ShortDigest:
    """Take the one artifact out of a pipe that was read to its end.

    Returns:
        A record, or what names an artifact when the pipe held one bare line.
    """
    if len(data) > MAX_BYTES:
        raise PipeError(f"the pipe is longer than {MAX_BYTES} bytes", piped="REF")
    lines = [line for line in data.split(b"\n") if line.strip()]
    if not lines:
        raise PipeError("the pipe is empty: the command before it failed or wrote nothing", piped="REF")
    if not any(line.lstrip().startswith(b"{") for line in lines):
        if len(lines) != 1:
            raise PipeError(f"the pipe holds {len(lines)} references; one is needed", piped="REF")
        try:
            return parse_artifact(lines[0].decode(errors="replace").strip())
        except BadRefError as error:
            raise PipeError(f"neither a record nor a reference came down the pipe: {error}", piped="REF") from error
    values = [_object(line) for line in lines]
    _check_end(values)
    if len(values) != 2:
        raise PipeError(f"the pipe holds {counted(len(values) - 1, 'artifact')}; one is needed", piped="REF")
    return _record(values[0])


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = parse_object(line, "the pipe", max_bytes=MAX_BYTES)
    except DataError as error:
        raise PipeError(f"a line of the pipe is cut or not a record ({error})", piped="REF") from error
    if value.get("schema") not in (REF_SCHEMA, END_SCHEMA):
        raise PipeError(f"the pipe speaks {str(value.get('schema'))[:80]!r}, not {REF_SCHEMA}", hint=upgrade_command())
    return value


def _check_end(values: list[dict[str, Any]]) -> None:
    last, before = values[-1], values[:-1]
    if last["schema"] != END_SCHEMA or any(v["schema"] == END_SCHEMA for v in before):
        raise PipeError("the pipe does not end with one end record: the command before it was cut off", piped="REF")
    if last.get("status") != "ok":
        code, status = last.get("code"), str(last.get("exit"))[:8]
        why = f"({str(code)[:80]}, exit {status})" if code else "and gave no reason"
        raise PipeError(f"the command before the pipe failed {why}; nothing was done")
    count = last.get("count")
    if not isinstance(count, int) or isinstance(count, bool) or count != len(before):
        raise PipeError(
            f"the end record counts {count!r}, and the pipe holds {counted(len(before), 'artifact')}", piped="REF"
        )


def _record(value: dict[str, Any]) -> Record:
    try:
        record = checked(Record, value, "the record in the pipe")
        Ref.parse(record.ref)
    except FormatError as error:
        raise PipeError(error.message, piped="REF") from error
    except BadRefError as error:
        raise PipeError(f"the record in the pipe: {error}", piped="REF") from error
    return record


def named_or_piped(workspace: Workspace, text: str, progress: Progress) -> Named:
    """Open the artifact that an argument names; of ``-`` the one that a pipe names, pulled where it has to be."""
    if text != "-":
        return workspace.find(text)
    from maskreg.workspace.workspace import Named

    # Read to the end before anything is touched: only the end record says that the upstream command succeeded.
    record = read(sys.stdin.buffer.read(MAX_BYTES + 1))
    if isinstance(record, Ref | Digest | ShortDigest):
        named = workspace.find(record)
    else:
        named = Named(Ref.parse(record.ref), _recorded(workspace, record, progress), Card())
    # The pipe cannot be read again, so next steps name what it named.
    context = click.get_current_context()
    words = [word for word in context.meta[ARGUMENTS] if word != "-"]
    context.meta[ARGUMENTS] = (str(named.ref or named.digest), *words)
    return named


def _recorded(workspace: Workspace, record: Record, progress: Progress) -> Artifact:
    digest = Digest(record.digest)
    try:
        return workspace.local.artifact(digest)
    except NotFoundError:
        # A remote's name from the pipe can be looked up in this machine's settings; an address from it is never used.
        if record.remote not in workspace.settings.remotes:
            _refuse_another(workspace, record, digest)
            raise

    pinned = replace(Ref.parse(record.ref), digest=digest)
    return verbs.pull.pull(pinned, remote=record.remote, to_apply=True, progress=progress, workspace=workspace).artifact


def _refuse_another(workspace: Workspace, record: Record, digest: Digest) -> None:
    try:
        local = workspace.local.resolve(replace(Ref.parse(record.ref), digest=None)).digest
    except NotFoundError:
        return
    raise PipeError(
        f"the record says that {record.ref} is {digest.short}, and in the local registry it is {local.short}",
        piped=record.ref,
    )
