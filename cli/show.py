"""``maskreg show``: everything about one artifact."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from maskreg.words import counted, percent
from maskreg.workspace import verbs

from .command import Command, workspace
from .output import Output
from .table import GROUPS
from .values import REF, selecting

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Group
    from maskreg.checkpoint.roles import Selection
    from maskreg.workspace.workspace import ArtifactLike


@click.command(
    cls=Command,
    example="""
    maskreg show qwen3-8b-opd
    maskreg show team/qwen3-8b-opd:v3 --remote lab --json
    maskreg show qwen3-8b-opd --by layer --role q_proj,o_proj --layers 0-11
    maskreg pull qwen3-8b-opd | maskreg show -
    maskreg show qwen3-8b-opd --manifest | sha256sum
    """,
)
@click.argument("ref_text", metavar="REF|-")
@click.option("--remote", help="Look on a remote, not in the local registry.")
@click.option("--manifest", "raw", is_flag=True, help="Print the manifest's bytes, whose sha256 is the digest.")
@click.option("--by", type=click.Choice(GROUPS), help="Show the density of these groups only [role and layer].")
@selecting
@click.option("-v", "--verbose", is_flag=True, help="Print whole digests and the whole recipe, and fold no groups.")
@click.option("--allow-rollback", is_flag=True, help="With --remote: take its tag as it is, even if its log went back.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    ref_text: str,
    raw: bool,
    by: str | None,
    roles: tuple[str, ...],
    layers: str,
    verbose: bool,
    **options: Any,
) -> None:
    """Print the summary of an artifact.

    Figures, source and target, parts and sizes, lineage and card. With -, the artifact is read from stdin, as
    `maskreg pull` writes it. --role and --layers choose the tensors that the groups count.
    """
    from maskreg.checkpoint.roles import Selection

    from .pipe import named_or_piped
    from .summary import summary

    output = ctx.ensure_object(Output)
    remote = options["remote"]
    if options["allow_rollback"] and not remote:
        raise click.UsageError("--allow-rollback is about the tag of a remote: add --remote NAME")
    if ref_text == "-" and remote:
        raise click.UsageError("a pipe names an artifact of the local registry: leave --remote out")
    selection = Selection.parse(roles, layers)
    if selection and by is None:
        by = "role"
    space = workspace(output)
    artifact: ArtifactLike
    if ref_text == "-":
        if sys.stdin.isatty():
            raise click.UsageError("stdin is a terminal: name the artifact, or use a pipe")
        with output.progress() as progress:
            artifact = named_or_piped(space, ref_text, progress)
    else:
        artifact = REF.convert(ref_text, None, ctx)
    if raw:
        sys.stdout.buffer.write(verbs.show.manifest_bytes(artifact, **options, workspace=space))
        sys.stdout.buffer.flush()
        return
    description = verbs.show.show(artifact, **options, workspace=space)
    if output.json:
        output.document(description.to_json(by, selection))
        return
    if output.quiet:
        output.data(str(description.ref.pinned(description.digest) if description.ref else description.digest))
        return
    overlaps = (description.rlvr_overlap, description.seed_overlap)
    groups = description.groups(by, selection) if by else None
    notes = (_selected(selection, groups),) if groups is not None and selection else ()
    shown = None if by is None or groups is None else {by: groups}
    output.data(
        summary(description, present=description.present, overlaps=overlaps, groups=shown, notes=notes, verbose=verbose)
    )


def _selected(selection: Selection, groups: Mapping[str, Group]) -> str:
    numel = sum(group.numel for group in groups.values())
    nnz = sum(group.nnz for group in groups.values())
    share = percent(nnz / numel if numel else None)
    return f"{selection}: {counted(numel, 'coordinate')}, of which {share} moved"
