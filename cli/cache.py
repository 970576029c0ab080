"""``maskreg cache``: what this machine has pulled, and making room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maskreg.errors import DataError, NotFoundError
from maskreg.ref import Ref, printable
from maskreg.settings.file import parse_size
from maskreg.words import counted, human_bytes

from .command import Group, workspace
from .output import Output
from .table import table
from .values import REF

if TYPE_CHECKING:
    from maskreg.workspace.verbs.cache import Pruned


@click.group(cls=Group, example="maskreg cache ls")
def command() -> None:
    """List what was pulled, check it, and make room.

    An artifact with a name that no pull has set is this machine's own, and not in the cache.
    """


@command.command("ls", example="maskreg cache ls --json")
@click.pass_obj
def list_(output: Output) -> None:
    """List what was pulled, the longest ago first."""
    from maskreg.workspace.verbs.cache import cached

    items = cached(workspace=workspace(output))
    if output.printed(items):
        return
    rows = [
        (f"{item.pulled_at:%Y-%m-%d %H:%M}", human_bytes(item.size), ", ".join(map(str, item.refs))) for item in items
    ]
    for line in table(rows, right=2) if rows else ():
        output.data(printable(line))
    output.note(f"{counted(len(items), 'artifact')}, {human_bytes(sum(item.size for item in items))}")


@command.command(example="maskreg cache rm team/qwen3-8b-opd:v3")
@click.argument("refs", nargs=-1, required=True, type=REF, metavar="REF...")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be removed.")
@click.pass_obj
def rm(output: Output, refs: tuple[Ref, ...], dry_run: bool) -> None:
    """Remove artifacts that were pulled, with their names. A pull brings them back."""
    from maskreg.workspace.several import tags_of
    from maskreg.workspace.verbs.cache import cached, prune_cache

    space = workspace(output)
    chosen = {tag.digest for tag in tags_of(space, refs) if tag.digest is not None}
    if own := chosen - {item.digest for item in cached(workspace=space)}:
        raise NotFoundError(f"{min(own).short} is this machine's own, and not in the cache", hint="maskreg rm REF")
    _report(output, prune_cache(only=chosen, dry_run=dry_run, workspace=space))


@command.command(example="maskreg cache prune --max-size 50GB --dry-run")
@click.option("--max-size", default="", metavar="SIZE", help="What it may take [default: the setting cache_size].")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be removed.")
@click.pass_obj
def prune(output: Output, max_size: str, dry_run: bool) -> None:
    """Remove what was pulled longest ago, until the cache is no larger than it may be."""
    from maskreg.workspace.verbs.cache import prune_cache

    limit = parse_size(max_size, "--max-size") if max_size else None
    _report(output, prune_cache(max_bytes=limit, dry_run=dry_run, workspace=workspace(output)))


@command.command(example="maskreg cache verify")
@click.pass_obj
def verify(output: Output) -> None:
    """Hash everything that was pulled. Exits with 65 when anything is damaged."""
    from maskreg.workspace.verbs.cache import verify_cache

    report = verify_cache(workspace=workspace(output))
    damaged = report.damaged if report else ()
    if output.json:
        output.reported = bool(damaged)
        output.document(report.to_json() if report else {"artifacts": 0, "damaged": []})
    for damage in damaged if not output.json else ():
        output.damage(f"{damage.key}: {damage.fault}", damage.error)
    if damaged:
        raise DataError(f"{counted(len(damaged), 'object')} damaged in the cache", hint="maskreg cache rm REF")
    output.note(f"{counted(report.artifacts if report else 0, 'artifact')} sound")


def _report(output: Output, pruned: Pruned) -> None:
    if output.printed({**pruned.to_json(), "freed": pruned.freed}):
        return
    for item in pruned.removed:
        output.data(f"{item.digest.short} {human_bytes(item.size)} {', '.join(map(str, item.refs))}")
    verb = "would free" if pruned.dry_run else "freed"
    output.note(f"{verb} {human_bytes(pruned.freed)}; {human_bytes(pruned.kept)} stay")
