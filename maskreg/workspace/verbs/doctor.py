"""Doctor: check that everything the use cases need works."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

from maskreg.catalog import Query
from maskreg.disk import free_bytes, is_read_only, nearest_existing, remove_drafts
from maskreg.errors import MaskregError
from maskreg.native import library
from maskreg.registry import Registry
from maskreg.registry.debris import LOCAL, SHARED, sweep
from maskreg.registry.searching import digests_in
from maskreg.result import Result
from maskreg.settings import Remote
from maskreg.version import __version__
from maskreg.words import counted, human_bytes
from maskreg.workspace.storing import of_catalog
from maskreg.workspace.verbs.remotes import probed, try_catalog
from maskreg.workspace.workspace import Workspace, opened

_LOW_BYTES = 5 << 30
_SHOWN = 3
# A team or a read-only cache can share a home on purpose; that every user can change it never is.
_WIDER: tuple[tuple[int, Literal["note", "bad"], str, str], ...] = (
    (0o002, "bad", "anyone can write to", "o-w"),
    (0o020, "note", "its group can write to", "g-rwx"),
    (0o005, "note", "anyone can read", "go-rwx"),
    (0o050, "note", "its group can read", "g-rwx"),
)


@dataclass(frozen=True)
class Finding(Result):
    """The result of one check.

    Attributes:
        what: the subject of the check.
        status: ``ok``, ``bad``, or ``note`` for a remark that needs no action.
        detail: what was found.
    """

    what: str
    status: Literal["ok", "note", "bad"]
    detail: str
    error: MaskregError | None = None


def doctor(directory: str | Path | None = None, *, workspace: Workspace | None = None) -> tuple[Finding, ...]:
    """Check the local registry, its catalog, the disk and every remote.

    A check that fails is not an error, but a finding with the status ``bad``. Nothing is created; what is put on a
    remote to try it is deleted.

    Args:
        directory: remove what interrupted runs of :func:`apply` and :func:`report` left in this folder.
    """
    with opened(workspace) as space:
        return tuple(findings(space, directory))


def findings(workspace: Workspace, directory: str | Path | None = None) -> Iterator[Finding]:
    """The findings of :func:`doctor` one after another, because a remote can take long to answer."""
    yield Finding("version", "ok", f"maskreg {__version__}")
    yield _checked("kernels", lambda: Finding("kernels", "ok", library().level))
    settings = workspace.settings
    path = settings.config_path
    remark = ", does not exist" if not path.exists() else ", is empty" if not path.stat().st_size else ""
    yield Finding("configuration", "ok", f"{path}{remark}")
    yield _checked("registry", lambda: _registry(workspace))
    if settings.home.is_dir():
        yield _permissions(settings.home)
        if not is_read_only(settings.home):
            yield from _leftovers(settings.home, LOCAL)
    yield _checked("catalog", lambda: _catalog(workspace))
    yield _disk(settings.home)
    for remote in settings.remotes.values():
        finding = _checked(f"remote {remote.name}", lambda remote=remote: _remote(workspace, remote))  # type: ignore[misc]
        yield finding
        if finding.status == "ok" and (files := workspace.remote(remote.name).store.files) is not None:
            yield from _leftovers(files.root, SHARED, remote.name)
        if remote.catalog and not settings.offline:
            yield _checked(f"catalog {remote.name}", lambda remote=remote: _remote_catalog(remote))  # type: ignore[misc]
    if directory is not None:
        yield _checked("unfinished work", lambda: _stale(Path(directory)))


def _checked(subject: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except MaskregError as error:
        return Finding(subject, "bad", error.message, error)


def _registry(workspace: Workspace) -> Finding:
    home, registry = workspace.settings.home, workspace.local
    if not home.exists():
        return Finding("registry", "ok", f"{home}, does not exist yet")
    finding = _names("registry", registry, str(home))
    if finding.status != "ok" or not is_read_only(home):
        return finding
    detail = f"{finding.detail}; read-only: pull of what is there, apply and list work; extract, tag, rm and gc do not"
    return replace(
        finding, status="note", detail=detail, error=MaskregError(detail, hint=f"ls -ld {shlex.quote(str(home))}")
    )


def _permissions(home: Path) -> Finding:
    mode = stat.S_IMODE(home.stat().st_mode)
    for bits, status, verb, change in _WIDER:
        if mode & bits:
            detail = f"{verb} {home} (mode {mode:04o})"
            step = MaskregError(detail, hint=f"chmod {change} {shlex.quote(str(home))}")
            return Finding("permissions", status, detail, step)
    return Finding("permissions", "ok", f"only its owner can read {home}")


def _leftovers(root: Path, folders: tuple[str, ...], remote: str = "") -> Iterator[Finding]:
    subject = f"leftovers {remote}".rstrip()
    try:
        files, size = sweep(root, folders, timedelta(), dry_run=True)
    except OSError as error:
        detail = f"{error.filename}: {error.strerror}"
        step = MaskregError(detail, hint=f"ls -ld {shlex.quote(str(error.filename))}")
        yield Finding(subject, "bad", detail, step)
        return
    if files:
        detail = f"{counted(files, 'file')} of interrupted work, {human_bytes(size)}, in {root}"
        yield Finding(subject, "note", detail, MaskregError(detail, leftovers=files, remote=remote))


def _names(subject: str, registry: Registry, summary: str) -> Finding:
    registry.check_format()
    damaged = registry.find_damage()
    live = [entry for entry in registry.refs.heads([]) if not entry.deleted]
    if damaged:
        detail = f"{counted(len(damaged), 'damaged name')}: {_few([error.message for error in damaged])}"
        return Finding(subject, "bad", detail, damaged[0])
    stored = set(digests_in(registry.store))
    if lost := [str(entry.ref) for entry in live if entry.digest not in stored]:
        detail = f"{counted(len(lost), 'name')} without an artifact: {_few(lost)}"
        fact = "lost" if registry.root is not None else "resend"
        return Finding(subject, "bad", detail, MaskregError(detail, **{fact: lost[0]}, remote=registry.remote_name))
    if _has_catalog(registry) and (missing := registry.search(Query()).left_out):
        # What is left of the log might be sound; that more was there only the catalog knows.
        detail = f"{counted(len(missing), 'name')} cannot be listed: {_few([name.reason for name in missing])}"
        return Finding(subject, "bad", detail, missing[0].error)
    return Finding(subject, "ok", f"{summary}, {counted(len(live), 'tag')}")


def _has_catalog(registry: Registry) -> bool:
    # Opening a catalog makes it, and a check makes nothing.
    return registry.root is not None and (registry.root / "catalog.db").exists()


def _few(items: Sequence[str]) -> str:
    return ", ".join([*items[:_SHOWN], *(["..."] if len(items) > _SHOWN else [])])


def _catalog(workspace: Workspace) -> Finding:
    if not workspace.settings.home.exists() or not _has_catalog(workspace.local):
        return Finding("catalog", "ok", "does not exist yet")
    registry = workspace.local
    if registry.index.open() is None:
        problem = registry.index.problem
        detail = f"unusable, so lists are read from the store: {problem.message if problem else 'unknown reason'}"
        return Finding("catalog", "bad", detail, of_catalog(problem, registry) if problem else None)
    return Finding("catalog", "ok", "usable")


def _disk(home: Path) -> Finding:
    free = free_bytes(home)
    detail = f"{human_bytes(free)} free at {nearest_existing(home)}"
    if free < _LOW_BYTES:
        return Finding("disk", "note", detail, MaskregError(detail, registry=str(home)))
    return Finding("disk", "ok", detail)


def _remote(workspace: Workspace, remote: Remote) -> Finding:
    subject = f"remote {remote.name}"
    if workspace.settings.offline:
        return Finding(subject, "note", "not checked while offline is set")
    probe = probed(remote)
    if not probe.writable:
        finding = _names(subject, workspace.remote(remote.name), f"{remote.url}: read-only: pull works, push does not")
        return replace(finding, status="note") if finding.status == "ok" else finding
    detail = f"{remote.url}: put, get, list, delete work; create-only writes are {probe.create_only}"
    if probe.safe:
        return _names(subject, workspace.remote(remote.name), detail)
    return Finding(subject, "bad", f"{detail}; {probe.reason}", MaskregError(probe.reason, taken_remote=remote.name))


def _remote_catalog(remote: Remote) -> Finding:
    try_catalog(remote)
    return Finding(f"catalog {remote.name}", "ok", "usable")


def _stale(directory: Path) -> Finding:
    from maskreg.checkpoint.output import clean_stale

    cleaned = (*clean_stale(directory), *remove_drafts(directory))
    if not cleaned:
        return Finding("unfinished work", "ok", f"none in {directory}")
    return Finding("unfinished work", "note", f"removed or restored: {', '.join(str(path) for path in cleaned)}")
