"""``maskreg verify``: hash stored objects."""

from __future__ import annotations

import click

from maskreg.errors import DataError
from maskreg.ref import Ref
from maskreg.words import counted, human_bytes

from .command import Command, workspace
from .output import Output
from .values import REF


@click.command(
    cls=Command,
    example="""
    maskreg verify qwen3-8b-opd
    maskreg verify --all --remote lab --json
    """,
)
@click.argument("ref", type=REF, required=False)
@click.option("--all", "everything", is_flag=True, help="Verify every artifact.")
@click.option("--remote", help="Verify a remote, not the local registry.")
@click.pass_obj
def command(output: Output, ref: Ref | None, everything: bool, remote: str | None) -> None:
    """Hash stored objects, and list damaged ones.

    Every object of the artifact REF, or of all artifacts; exits with 65 when any is damaged.
    """
    if (ref is None) != everything:
        raise click.UsageError("give a REF, or --all")
    from maskreg.workspace.verify import verify

    with output.progress() as progress:
        report = verify(ref, remote=remote, progress=progress, workspace=workspace(output))
    if output.json:
        # The document says what is damaged; a second one would not parse beside it.
        output.reported = True
        output.document(report.to_json())
    else:
        for damage in report.damaged:
            output.data(f"{damage.key}: {damage.what}  ({', '.join(damage.names) or 'no name'})")
        objects, artifacts = counted(report.objects, "object"), counted(report.artifacts, "artifact")
        output.note(f"hashed {objects} of {artifacts}, {human_bytes(report.bytes)}")
    if not report.ok:
        names = sorted({name for damage in report.damaged for name in damage.names})
        hint = f"maskreg pull {names[0]} replaces damaged objects" if names and not remote else ""
        raise DataError(f"{counted(len(report.damaged), 'object')} damaged in {remote or 'local'}", hint=hint)
