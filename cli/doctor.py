"""``maskreg doctor``: whether everything that the other commands need works here."""

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
    """One thing that was looked at: ``ok``, a ``note`` that changes nothing, or ``bad``."""

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
    """Check that everything works here.

    The local registry, its catalog, the disk and every remote; exit 1 when something is bad. In
    DIRECTORY what interrupted runs of `apply` left behind is removed.
    """
    output = ctx.ensure_object(Output)
    findings = []
    for finding in _look(directory):
        findings.append(finding)
        if not output.json:
            output.data(f"{_MARKS[finding.status]}  {finding.what:<14}  {finding.detail}")
            if finding.hint:
                output.data(f"{'':<22}next: {finding.hint}")
    if output.json:
        output.document([asdict(finding) for finding in findings])
    ctx.exit(1 if any(finding.status == "bad" for finding in findings) else 0)


def _look(directory: Path | None) -> Iterator[Finding]:
    from .places import settings

    yield Finding("version", "ok", f"maskreg {maskreg.__version__}")
    chosen = settings()
    there = "" if chosen.config_path.exists() else ", not there"
    yield Finding("configuration", "ok", f"{chosen.config_path}{there}")
    yield _checked("registry", lambda: _registry(chosen))
    yield _checked("catalog", lambda: _catalog(chosen))
    yield _disk(chosen.home)
    for remote in chosen.remotes.values():
        yield _checked(f"remote {remote.name}", lambda remote=remote: _remote(chosen, remote))  # type: ignore[misc]
    if directory is not None:
        yield _stale(directory)


def _checked(what: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except MaskregError as error:
        return Finding(what, "bad", error.message, error.hint)


def _registry(chosen: Settings) -> Finding:
    from .places import local

    here = local(chosen)
    if not chosen.home.exists():
        return Finding("registry", "ok", f"{chosen.home}, not there yet")
    return _names("registry", here, str(chosen.home))


def _names(what: str, there: Registry, good: str) -> Finding:
    from maskreg.registry.index import digests_in

    there.check_format()
    damaged: list[CorruptError] = []
    live = [entry for entry in there.refs.heads(damaged) if not entry.deleted]
    if damaged:
        detail = f"{len(damaged)} damaged names: {_few([error.message for error in damaged])}"
        return Finding(what, "bad", detail, damaged[0].hint)
    here = set(digests_in(there.store))
    if lost := [str(entry.ref) for entry in live if entry.digest not in here]:
        again = f"maskreg pull {lost[0]}, or maskreg rm -y {lost[0]}"
        if there.root is None:
            again = f"maskreg push --remote {there.name} {lost[0]}"
        detail = f"{len(lost)} names without their artifact: {_few(lost)}"
        return Finding(what, "bad", detail, again)
    return Finding(what, "ok", f"{good}, {counted(len(live), 'tag')}")


def _few(items: Sequence[str]) -> str:
    return ", ".join([*items[:_SHOWN], *(["..."] if len(items) > _SHOWN else [])])


def _catalog(chosen: Settings) -> Finding:
    from .places import catalog_step, local

    if not chosen.home.exists():
        return Finding("catalog", "ok", "not there yet")
    here = local(chosen)
    if here.catalog is None:
        problem = here.catalog_problem
        detail = f"unusable, lists are read from the store: {problem.message if problem else 'no reason known'}"
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
    from .places import remote as opened

    what = f"remote {remote.name}"
    if chosen.offline:
        return Finding(what, "note", "not asked while offline is set")
    found = probed(remote)
    detail = f"{remote.url}: put, get, list, delete work; create-only writes are {found.create_only}"
    if remote.keeps_tags(found.safe):
        return _names(what, opened(chosen, remote.name), detail)
    return Finding(what, "bad", f"{detail}; {found.reason}", f"maskreg remote remove {remote.name}")


def _stale(directory: Path) -> Finding:
    from maskreg.checkpoint import clean_stale

    done = clean_stale(directory)
    if not done:
        return Finding("unfinished work", "ok", f"none in {directory}")
    return Finding("unfinished work", "note", f"removed or brought back: {', '.join(str(path) for path in done)}")
