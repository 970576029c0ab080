"""``maskreg doctor``: check that everything the other commands need works."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

import maskreg
from maskreg.disk import free_bytes, nearest_existing
from maskreg.errors import MaskregError
from maskreg.words import counted

from .command import Command
from .output import Output, human_bytes

if TYPE_CHECKING:
    from maskreg.errors import CorruptError
    from maskreg.registry import Registry
    from maskreg.settings import Remote, Settings

_LOW_BYTES = 5 << 30
_SHOWN = 3
_MARKS = {"ok": "ok  ", "note": "note", "bad": "BAD "}


@dataclass(frozen=True)
class Finding:
    """The result of one check: ``ok``, a ``note`` that does not change the exit code, or ``bad``.

    The field names are keys of ``doctor --json``: ``what`` is the subject of the check.
    """

    what: str
    status: str
    detail: str
    hint: str = ""


@click.command(
    cls=Command,
    example="""
    maskreg doctor
    maskreg doctor ./checkpoints
    """,
)
@click.argument("directory", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.pass_context
def command(ctx: click.Context, directory: Path | None) -> None:
    """Check the local registry, its catalog, the disk and every remote.

    Exits 1 when a check fails. With DIRECTORY, files that interrupted runs of `apply` left in it are removed.
    """
    output = ctx.ensure_object(Output)
    findings = []
    for finding in _findings(directory):
        findings.append(finding)
        if not output.json:
            output.data(f"{_MARKS[finding.status]}  {finding.what:<14}  {finding.detail}")
            if finding.hint:
                output.data(f"{'':<22}next: {finding.hint}")
    if output.json:
        output.document([asdict(finding) for finding in findings])
    ctx.exit(1 if any(finding.status == "bad" for finding in findings) else 0)


def _findings(directory: Path | None) -> Iterator[Finding]:
    from .places import settings

    yield Finding("version", "ok", f"maskreg {maskreg.__version__}")
    chosen = settings()
    missing = "" if chosen.config_path.exists() else ", does not exist"
    yield Finding("configuration", "ok", f"{chosen.config_path}{missing}")
    yield _checked("registry", lambda: _registry(chosen))
    yield _checked("catalog", lambda: _catalog(chosen))
    yield _disk(chosen.home)
    for remote in chosen.remotes.values():
        yield _checked(f"remote {remote.name}", lambda remote=remote: _remote(chosen, remote))  # type: ignore[misc]
    if directory is not None:
        yield _stale(directory)


def _checked(subject: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except MaskregError as error:
        return Finding(subject, "bad", error.message, error.hint)


def _registry(chosen: Settings) -> Finding:
    from .places import local

    registry = local(chosen)
    if not chosen.home.exists():
        return Finding("registry", "ok", f"{chosen.home}, does not exist yet")
    return _names("registry", registry, str(chosen.home))


def _names(subject: str, registry: Registry, summary: str) -> Finding:
    from maskreg.registry.index import digests_in

    registry.check_format()
    damaged: list[CorruptError] = []
    live = [entry for entry in registry.refs.heads(damaged) if not entry.deleted]
    if damaged:
        detail = f"{len(damaged)} damaged names: {_few([error.message for error in damaged])}"
        return Finding(subject, "bad", detail, damaged[0].hint)
    stored = set(digests_in(registry.store))
    if lost := [str(entry.ref) for entry in live if entry.digest not in stored]:
        hint = f"maskreg pull {lost[0]}, or maskreg rm -y {lost[0]}"
        if registry.root is None:
            hint = f"maskreg push --remote {registry.name} {lost[0]}"
        detail = f"{len(lost)} names without their artifact: {_few(lost)}"
        return Finding(subject, "bad", detail, hint)
    return Finding(subject, "ok", f"{summary}, {counted(len(live), 'tag')}")


def _few(items: Sequence[str]) -> str:
    return ", ".join([*items[:_SHOWN], *(["..."] if len(items) > _SHOWN else [])])


def _catalog(chosen: Settings) -> Finding:
    from .places import catalog_step, local

    if not chosen.home.exists():
        return Finding("catalog", "ok", "does not exist yet")
    registry = local(chosen)
    if registry.catalog is None:
        problem = registry.catalog_problem
        detail = f"unusable, so lists are read from the store: {problem.message if problem else 'unknown reason'}"
        return Finding("catalog", "bad", detail, catalog_step(problem, None))
    return Finding("catalog", "ok", "usable")


def _disk(home: Path) -> Finding:
    free = free_bytes(home)
    detail = f"{human_bytes(free)} free at {nearest_existing(home)}"
    if free < _LOW_BYTES:
        return Finding("disk", "note", detail, "maskreg gc --dry-run")
    return Finding("disk", "ok", detail)


def _remote(chosen: Settings, remote: Remote) -> Finding:
    from .places import probed
    from .places import remote as open_remote

    subject = f"remote {remote.name}"
    if chosen.offline:
        return Finding(subject, "note", "not checked while offline is set")
    probe = probed(remote)
    detail = f"{remote.url}: put, get, list, delete work; create-only writes are {probe.create_only}"
    if remote.keeps_tags(probe.safe):
        return _names(subject, open_remote(chosen, remote.name), detail)
    return Finding(subject, "bad", f"{detail}; {probe.reason}", f"maskreg remote remove {remote.name}")


def _stale(directory: Path) -> Finding:
    from maskreg.checkpoint import clean_stale

    cleaned = clean_stale(directory)
    if not cleaned:
        return Finding("unfinished work", "ok", f"none in {directory}")
    return Finding("unfinished work", "note", f"removed or restored: {', '.join(str(path) for path in cleaned)}")
