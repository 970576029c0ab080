"""``maskreg verify``: check stored artifacts, tags and the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maskreg.ref import Ref
from maskreg.words import counted, human_bytes
from maskreg.workspace import verbs

from .command import Command, workspace
from .key import problems, show_signatures
from .next_step import stated
from .output import Output, told
from .values import REF

if TYPE_CHECKING:
    from maskreg.registry.verify import Verified


@click.command(
    cls=Command,
    example="""
    maskreg verify qwen3-8b-opd
    maskreg verify qwen3-8b-opd team/qwen3-8b-rlvr:v1 --recount
    maskreg verify --all --remote lab --json
    maskreg verify --signatures --all --remote lab
    """,
)
@click.argument("refs", type=REF, nargs=-1, metavar="[REF]...")
@click.option("--all", "everything", is_flag=True, help="Verify every tag and artifact, and the catalog's file.")
@click.option("--remote", help="Verify a remote, not the local registry.")
@click.option("--signatures", is_flag=True, help="Say which keys vouch for the tags, and hash nothing.")
@click.option("--recount", is_flag=True, help="Count the mask's bits, and compare them with the figures.")
@click.pass_obj
def command(
    output: Output, /, refs: tuple[Ref, ...], everything: bool, remote: str | None, signatures: bool, recount: bool
) -> None:
    """Check stored artifacts and tags, and list what is damaged.

    Every object of each artifact REF is hashed and opened, and the log of its tag read; with --all everything in the
    registry, the structure of the catalog's file, and that the store has every entry that the catalog knows. Other
    rows of the catalog can be made again with `db rebuild`. Exits with 65 when anything is damaged; with 69, 77 or 78,
    as `db check` does, when the catalog could not be looked at. A service named with --remote is asked to verify each
    artifact itself, too; its page says what came of it.

    With --signatures it lists which key vouches for each tag, and since when: `signed` by it, or `listed` in what it
    found when it began. Exits with 1 when a tag is in a project without a key, and with 65 when its signature is wrong.
    """
    if bool(refs) == everything:
        raise click.UsageError("give a REF, or --all")
    if signatures:
        if recount:
            raise click.UsageError("--signatures looks at no masks: leave out --recount")

        show_signatures(output, verbs.keys.verify(*refs, remote=remote, workspace=workspace(output)))
        return

    with output.progress() as progress:
        report = verbs.verify.verify(
            *refs, remote=remote, recount=recount, progress=progress, workspace=workspace(output)
        )
    if output.json:
        # The document says what is damaged; a second one would not parse beside it.
        output.reported = True
        document = report.to_json()
        document["damaged"] = [stated(damage.to_json(), damage.error) for damage in report.damaged]
        if (why := report.unchecked) is not None:
            document["unchecked"] = stated({"fault": why.message}, why)
        output.document(document)
    else:
        for damage in report.damaged:
            line = f"{damage.key}: {damage.fault}  ({', '.join(damage.names) or 'no name'})"
            output.damage(line, damage.error)
        output.note(f"checked {_checked(report)}")
        if report.damaged and report.unchecked is not None:
            output.note(told(f"the catalog was not checked: {report.unchecked.message}", report.unchecked))
    if report.damaged:
        raise problems(f"{counted(len(report.damaged), 'problem')} in {remote or 'local'}", report.damaged)
    if report.unchecked is not None:
        raise report.unchecked


def _checked(report: Verified) -> str:
    objects = f"{counted(report.objects, 'object')} ({human_bytes(report.bytes)})"
    kinds = [f"{counted(report.artifacts, 'artifact')} with {objects}"]
    if report.recounted:
        kinds.append("their figures against their masks")
    if report.tags:
        kinds.append(f"{counted(report.tags, 'tag')} with {counted(report.entries, 'log entry')}")
    if report.catalog:
        kinds.append("the catalog")
    return ", ".join(kinds)
