"""``maskreg show``: everything about one artifact."""

from __future__ import annotations

import sys

import click

from maskreg.ref import Ref

from .command import Command
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
@click.option("--remote", help="Look on a remote instead of in the local registry.")
@click.option("--history", "with_history", is_flag=True, help="What the tag pointed to over time.")
@click.option("--manifest", "raw", is_flag=True, help="The manifest's canonical bytes, whose sha256 is the digest.")
@click.pass_obj
def command(output: Output, ref: Ref, remote: str | None, with_history: bool, raw: bool) -> None:
    """Print the summary of an artifact.

    Numbers, identities of source and target, parts and sizes, lineage and card.
    """
    from maskreg.workspace.description import describe

    from .places import recorded, registry
    from .summary import Subject, history, summary

    there = registry(remote)
    resolved = there.resolve(ref)
    artifact = there.artifact(resolved.digest)
    if raw:
        from maskreg.artifact.layout import MANIFEST, artifact_prefix
        from maskreg.limits import LIMITS

        # As stored: keys of a newer version, which the digest covers, are still in there.
        key = artifact_prefix(resolved.digest) + MANIFEST
        stream = sys.stdout.buffer
        stream.write(there.store.get(key, max_bytes=LIMITS.manifest_bytes))
        stream.flush()
        return
    card = resolved.entry.card if resolved.entry else None
    present = sorted(artifact.present())
    measured = recorded(there, resolved.digest)
    past = tuple(there.history(ref)) if with_history else ()
    if output.json:
        value = describe(ref, resolved.digest, artifact.manifest, card, present=present, measured=measured)
        rows = [
            {"n": e.n, "digest": e.digest, "deleted": e.deleted, "by": e.by, "at": e.at.isoformat(), "origin": e.origin}
            for e in past
        ]
        output.document({**value, "history": rows} if with_history else value)
        return
    output.data(summary(Subject(ref, resolved.digest, artifact.manifest, card), present=present, measured=measured))
    if with_history:
        output.data("\n" + history(past))
