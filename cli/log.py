"""``maskreg log``: what a tag pointed to over time."""

from __future__ import annotations

import click

from maskreg.ref import Ref

from .command import Command, workspace
from .output import Output
from .table import table
from .values import REF


@click.command(
    cls=Command,
    example="""
    maskreg log qwen3-8b-opd
    maskreg log team/qwen3-8b-opd:v3 --remote lab --json
    """,
)
@click.argument("ref", type=REF)
@click.option("--remote", help="Look on a remote, not in the local registry.")
@click.option("--allow-rollback", is_flag=True, help="With --remote: take its tag as it is, even if its log went back.")
@click.pass_obj
def command(output: Output, ref: Ref, remote: str | None, allow_rollback: bool) -> None:
    """Print the history of a tag, the oldest entry first.

    For each entry: its number, when, who, the digest that the tag pointed to from then on, and what happened: created,
    moved, annotated, fixed (made immutable), removed, restored, or set again (to another artifact after a removal).
    Removed tags have a history too. A digest that is gone from the tag can be used until `gc` deletes its artifact:
    maskreg tag NAME@DIGEST TAG.
    """
    from maskreg.workspace.log import log

    if allow_rollback and not remote:
        raise click.UsageError("--allow-rollback is about the tag of a remote: add --remote NAME")
    entries = log(ref, remote=remote, allow_rollback=allow_rollback, workspace=workspace(output))
    if output.json:
        output.document([entry.to_json() for entry in entries])
        return
    if output.quiet:
        for entry in entries:
            output.data(str(entry.digest) if entry.digest else "-")
        return
    rows = []
    for entry in entries:
        digest = entry.digest.short if entry.digest else "-"
        action = entry.action + (f", from {entry.origin}" if entry.origin else "")
        action += ", immutable" if entry.immutable and entry.action != "fixed" else ""
        rows.append((str(entry.n), f"{entry.at:%Y-%m-%d %H:%M}", digest, entry.by, action))
    for line in table(rows, right=len(rows[0])):
        output.data(line)
