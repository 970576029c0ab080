"""``maskreg show``: everything about one artifact."""

from __future__ import annotations

import sys

import click

from maskreg.ref import Ref

from .command import Command, workspace
from .output import Output
from .values import REF


@click.command(
    cls=Command,
    example="""
    maskreg show qwen3-8b-opd
    maskreg show team/qwen3-8b-opd:v3 --remote lab --json
    maskreg show qwen3-8b-opd --manifest | sha256sum
    """,
)
@click.argument("ref", type=REF)
@click.option("--remote", help="Look on a remote, not in the local registry.")
@click.option("--history", "with_history", is_flag=True, help="Print what the tag pointed to over time.")
@click.option(
    "--manifest", "raw", is_flag=True, help="Print the manifest's canonical bytes, whose sha256 is the digest."
)
@click.option("--allow-rollback", is_flag=True, help="With --remote: take its tag as it is, even if its log went back.")
@click.pass_obj
def command(output: Output, ref: Ref, remote: str | None, with_history: bool, raw: bool, allow_rollback: bool) -> None:
    """Print the summary of an artifact.

    Figures, source and target, parts and sizes, lineage and card.
    """
    from maskreg.workspace.history import history
    from maskreg.workspace.show import manifest_bytes, show

    from .summary import Subject, history_table, summary

    if allow_rollback and not remote:
        raise click.UsageError("--allow-rollback is about the tag of a remote: add --remote NAME")
    space = workspace(output)
    if raw:
        sys.stdout.buffer.write(manifest_bytes(ref, remote=remote, allow_rollback=allow_rollback, workspace=space))
        sys.stdout.buffer.flush()
        return
    description = show(ref, remote=remote, allow_rollback=allow_rollback, workspace=space)
    entries = history(ref, remote=remote, workspace=space) if with_history else ()
    if output.json:
        value = description.to_json()
        output.document({**value, "history": [entry.to_json() for entry in entries]} if with_history else value)
        return
    subject = Subject(ref, description.digest, description.manifest, description.card)
    overlaps = (description.rlvr_overlap, description.seed_overlap)
    output.data(summary(subject, present=description.present, overlaps=overlaps))
    if with_history:
        output.data("\n" + history_table(entries))
