"""``maskreg push``: publish an artifact on a remote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maskreg.errors import ConfigError
from maskreg.ref import Ref
from maskreg.words import counted

from .command import Command
from .output import Output, human_bytes
from .values import REF

if TYPE_CHECKING:
    from maskreg.registry import Registry


@click.command(
    cls=Command,
    example="""
    maskreg push qwen3-8b-opd
    maskreg push team/qwen3-8b-opd --remote lab --tag v3
    """,
)
@click.argument("ref", type=REF)
@click.option("--remote", "remote_name", help="Remote to publish on; the default remote when left out.")
@click.option("--tag", help="Tag to set there; the local one when left out.")
@click.pass_obj
def command(output: Output, ref: Ref, remote_name: str | None, tag: str | None) -> None:
    """Publish an artifact on a remote.

    Objects that are missing there travel first, each hashed; the tag is set last.
    """
    from maskreg.registry.transfer import push

    from .places import local, note_catalog, remote, settings

    chosen = settings()
    here, there = local(), remote(chosen, remote_name)
    _check_catalog(there)
    with output.progress() as progress:
        pushed = push(here, there, ref, tag=tag, progress=progress, jobs=chosen.jobs)
    note_catalog(output, there)
    entry = pushed.entry
    name = Ref(entry.project, entry.name, entry.tag)
    if output.json:
        output.document(
            {
                "ref": str(name),
                "digest": str(entry.digest),
                "remote": there.name,
                "url": there.url,
                "parts": sorted(pushed.parts),
                "sent_objects": pushed.sent_objects,
                "sent_bytes": pushed.sent_bytes,
                "reused_bytes": pushed.reused_bytes,
            }
        )
        return
    output.data(f"{name}@{entry.digest}")
    output.note(
        f"pushed to {there.name}: {counted(pushed.sent_objects, 'object')}, {human_bytes(pushed.sent_bytes)} sent, "
        f"{human_bytes(pushed.reused_bytes)} there already"
    )


def _check_catalog(there: Registry) -> None:
    # What is published should be found, so a schema of another version stops the push before it starts.
    problem = None if there.catalog else there.catalog_problem
    if isinstance(problem, ConfigError):
        hint = problem.hint.replace("maskreg db upgrade", f"maskreg db upgrade --remote {there.name}")
        raise ConfigError(problem.message, hint=hint) from problem
