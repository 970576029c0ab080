"""``maskreg tag``: give an artifact more names."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click

from maskreg.errors import UsageError
from maskreg.ref import Ref, printable
from maskreg.words import counted
from maskreg.workspace import verbs

from .command import Command, workspace
from .output import Output
from .table import table
from .values import PAIR, REF, text_of


@click.command(
    cls=Command,
    example="""
    maskreg tag qwen3-8b-opd v3 best
    maskreg tag team/qwen3-8b-opd v3 --immutable
    maskreg tag qwen3-8b-opd@sha256:<64 hex> team/qwen3-8b-opd:paper
    """,
)
@click.argument("ref", type=REF)
@click.argument("new", nargs=-1, required=True)
@click.option("--remote", help="Set them on a remote, not in the local registry.")
@click.option("--immutable", is_flag=True, help="NEW must never point to another artifact; cannot be undone.")
@click.pass_obj
def command(output: Output, ref: Ref, new: tuple[str, ...], remote: str | None, immutable: bool) -> None:
    """Give an artifact more names.

    REF keeps its own. NEW is a tag of the same name, or a whole reference when it holds a '/' or a ':'.
    A tag that exists moves, unless it is immutable.
    """
    names = verbs.tag.tag(ref, *new, immutable=immutable, remote=remote, workspace=workspace(output))
    output.answer(names)
    for name in names:
        output.data(str(name.ref.pinned(name.digest)))


@click.command(
    cls=Command,
    example="""
    maskreg mv qwen3-8b-opd:v1 team/qwen3-8b-opd
    maskreg mv qwen3-8b-opd:v1 qwen3-8b-opd:first
    maskreg mv --all qwen3-8b-opd team/qwen3-8b-opd
    """,
)
@click.argument("old", type=REF)
@click.argument("new")
@click.option("--all", "all_tags", is_flag=True, help="Move every tag of the name OLD.")
@click.option("--remote", help="Rename on a remote, not in the local registry.")
@click.option("--force", is_flag=True, help="Replace a name that points to another artifact.")
@click.pass_obj
def mv(output: Output, /, old: Ref, new: str, remote: str | None, **options: Any) -> None:
    """Rename the tag OLD to NEW.

    NEW is [project/]name[:tag]; without a tag it keeps the tag of OLD. The history of OLD stays, and `restore` brings
    it back; what NEW pointed to stays in its history. Remotes keep the old name until you push the new one, or rename
    it there with --remote; on a service, that needs the role admin in the project of OLD. For a moment both names are
    there; after an interruption the same command removes the old one.
    """
    moved = verbs.tag.mv(old, new, remote=remote, **options, workspace=workspace(output))
    output.answer(moved)
    for row in moved:
        output.data(str(row.new.pinned(row.digest)))
        # Spelled in full: a tag that is left out means the tag of the first name.
        back = f"{row.old.project}/{row.old.name}:{row.old.tag}"
        where = f" --remote {remote}" if remote else ""
        output.note(f"{row.old} is {row.new} now; back with: maskreg mv {row.new} {back}{where}")


@click.command(
    cls=Command,
    example="""
    maskreg rm qwen3-8b-opd:old
    maskreg rm team/qwen3-8b-opd:v1 --remote lab
    maskreg rm -y team/qwen3-8b-opd:v1 team/qwen3-8b-opd:v2 && maskreg gc --dry-run
    """,
)
@click.argument("refs", nargs=-1, required=True, type=REF, metavar="REF...")
@click.option("--remote", help="Remove them on a remote, not in the local registry.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def rm(output: Output, refs: tuple[Ref, ...], remote: str | None, yes: bool) -> None:
    """Remove tags.

    All of them must exist, or none is removed. `restore` brings a tag back until `gc` has deleted the artifact.
    """
    from maskreg.workspace.several import tags_of

    space = workspace(output)
    tags = tags_of(space, refs, remote)
    if not yes:
        # The digest shows what is lost; it also keeps a tag that moves meanwhile.
        shown = [f"{replace(tag, digest=None)} ({tag.digest.short})" for tag in tags if tag.digest]
        if not sys.stdin.isatty():
            names = ", ".join(str(replace(tag, digest=None)) for tag in tags)
            raise UsageError(f"stdin is not a terminal, so removing {names} needs -y", options={"yes": True})
        output.ask(f"remove {', '.join(shown)}?")
    removed = []
    option = f" --remote {remote}" if remote else ""
    for tag in tags:
        removed.append(verbs.tag.remove(tag, remote=remote, workspace=space))
        last = removed[-1]
        if not output.json:
            output.note(f"removed {last.ref} ({last.digest.short}); back with: maskreg restore {last.ref}{option}")
    if output.json:
        output.document([tag.to_json() for tag in removed])


@click.command(cls=Command, example="maskreg restore qwen3-8b-opd:old")
@click.argument("ref", type=REF)
@click.option("--remote", help="Bring it back on a remote, not in the local registry.")
@click.pass_obj
def restore(output: Output, ref: Ref, remote: str | None) -> None:
    """Bring a removed tag back as it was."""
    restored = verbs.tag.restore(ref, remote=remote, workspace=workspace(output))
    output.answer(restored)
    output.data(str(restored.ref.pinned(restored.digest)))


@click.command(
    cls=Command,
    example="""
    maskreg annotate qwen3-8b-opd --family qwen3-8b --license apache-2.0
    maskreg annotate qwen3-8b-opd --meta teacher=qwen3-32b --meta seed=17
    maskreg annotate qwen3-8b-opd --readme README.md
    """,
)
@click.argument("ref", type=REF)
@click.option("--remote", help="Change it on a remote, not in the local registry.")
@click.option("--family", help="Model family, such as qwen3-8b.")
@click.option("--method", help="How the target was trained: opd, rlvr, sft or another word.")
@click.option("--license", help="SPDX identifier, such as apache-2.0.")
@click.option("--description", help="One paragraph for people.")
@click.option("--readme", metavar="FILE", help="Markdown file for the artifact's page; - for stdin.")
@click.option("--meta", type=PAIR, multiple=True, help="Run metadata; repeatable. An empty value removes the key.")
@click.pass_obj
def annotate(
    output: Output, /, ref: Ref, meta: tuple[tuple[str, str], ...], readme: str | None, **options: Any
) -> None:
    """Change the card of an artifact.

    Family, method, license, description, README and run metadata. The artifact and its digest stay the same.
    """
    try:
        options |= {} if readme is None else {"readme": text_of(readme)}
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--readme'") from error
    annotated = verbs.tag.annotate(ref, meta=dict(meta), **options, workspace=workspace(output))
    output.answer(annotated)
    for key, value in annotated.card.to_json().items():
        rows = value.items() if isinstance(value, dict) else [(key, value)]
        for name, text in rows:
            shown = counted(len(str(text).splitlines()), "line") if key == "readme" else text
            output.data(printable(f"{name:<12} {shown}"))


@click.command(cls=Command, example="maskreg log team/qwen3-8b-opd:v3 --remote lab --json")
@click.argument("ref", type=REF)
@click.option("--remote", help="Look on a remote, not in the local registry.")
@click.option("--allow-rollback", is_flag=True, help="With --remote: take its tag as it is, even if its log went back.")
@click.pass_obj
def log(output: Output, ref: Ref, remote: str | None, allow_rollback: bool) -> None:
    """Print the history of a tag, the oldest entry first.

    For each entry: its number, when, who, the digest that the tag pointed to from then on, and what happened: created,
    moved, annotated, fixed (made immutable), removed, restored, or set again (to another artifact after a removal).
    Removed tags have a history too. A digest that is gone from the tag can be used until `gc` deletes its artifact:
    maskreg tag NAME@DIGEST TAG.
    """
    if allow_rollback and not remote:
        raise click.UsageError("--allow-rollback is about the tag of a remote: add --remote NAME")
    entries = verbs.log.log(ref, remote=remote, allow_rollback=allow_rollback, workspace=workspace(output))
    output.answer(entries)
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
    output.data("\n".join(table(rows, right=len(rows[0]))))
