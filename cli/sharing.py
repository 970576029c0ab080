"""``maskreg pull``, ``push`` and ``cache``: artifacts from and to remotes, and what was pulled."""

from __future__ import annotations

import sys
from typing import Any

import click

from maskreg.digest import Digest
from maskreg.errors import NotFoundError
from maskreg.ref import Ref, ShortDigest, printable
from maskreg.settings.file import parse_size
from maskreg.words import counted, human_bytes
from maskreg.workspace import verbs

from .command import Command, Group, workspace
from .exits import failure
from .output import Output, is_pipe
from .table import table
from .values import REF, Parsed


@click.command(
    cls=Command,
    example="""
    maskreg pull qwen3-8b-opd | maskreg apply
    maskreg pull team/qwen3-8b-opd:v3 team/qwen3-8b-rlvr --remote lab
    maskreg pull qwen3-8b-opd --only mask
    """,
)
@click.argument("refs", nargs=-1, required=True, type=REF, metavar="REF...")
@click.option("--remote", help="Remote to ask [the default remote].")
@click.option("--only", type=click.Choice(["mask", "delta", "reverse", "analysis"]), help="Bring only this part.")
@click.option("--allow-rollback", is_flag=True, help="Take the remote's tag as it is, even if its log went back.")
@click.pass_obj
def pull(output: Output, /, refs: tuple[Ref | Digest | ShortDigest, ...], only: str | None, **options: Any) -> None:
    """Bring artifacts into the local registry, or find them there.

    What is there is hashed, and fetched again where it is damaged. Without a remote to ask, only its presence and
    sizes are checked; `maskreg verify` hashes it.

    When stdout is not a terminal, or with --json, prints one JSON record for each artifact and an end record that
    says whether all went well: the input of `maskreg apply`. Into a pipe it fetches only what `apply` reads:
    the delta without the mask, where there is a delta. A command that needs the mask later fetches it.
    """
    piped = output.json or not sys.stdout.isatty()
    done = 0
    try:
        from maskreg.registry.pull import DEFAULT_PARTS

        options["parts"] = (only,) if only else DEFAULT_PARTS
        options["to_apply"] = only is None and not output.json and is_pipe(sys.stdout)
        space = workspace(output)
        with output.progress() as progress:
            for ref in refs:
                pulled = verbs.pull.pull(ref, **options, progress=progress, workspace=space)
                if pulled.note and (pulled.remote or space.settings.offline):
                    output.note(f"note: {pulled.note}")
                _tell_pulled(output, pulled, piped)
                done += 1
    except BrokenPipeError:
        raise
    except BaseException as error:
        if piped:
            # Otherwise the reader of the pipe could not tell a failure from the end.
            output.reported = True
            from .pipe import end

            output.record(end(done, failure(error).to_json()))
        raise
    if piped:
        from .pipe import end

        output.record(end(done))


def _tell_pulled(output: Output, pulled: verbs.pull.Pulled, piped: bool) -> None:
    manifest = pulled.artifact.manifest
    if output.quiet and not piped:
        output.data(str(pulled.ref) if pulled.ref and pulled.ref.digest else f"{pulled.ref}@{pulled.digest}")
        return
    if piped:
        from .pipe import record

        assert pulled.ref is not None  # pulled by name
        output.record(record(pulled.ref, pulled.digest, manifest, path=str(pulled.path), remote=pulled.remote))
        return
    fetched = f"{counted(pulled.fetched_objects, 'object')}, {human_bytes(pulled.fetched_bytes)} fetched"
    output.data(f"{pulled.ref}  {pulled.digest.short}  {manifest.kind}  {human_bytes(manifest.size)}")
    output.data(f"  {fetched}, {human_bytes(pulled.reused_bytes)} in the local registry already")
    output.data(f"  {pulled.path}")


@click.command(
    cls=Command,
    example="""
    maskreg push qwen3-8b-opd
    maskreg push team/qwen3-8b-opd --remote lab --tag v3
    maskreg push seed-1 seed-2 seed-3
    """,
)
@click.argument("refs", nargs=-1, required=True, type=REF, metavar="REF...")
@click.option("--remote", help="Remote to publish on [the default remote].")
@click.option("--tag", help="Tag to set on the remote, of one REF [the local tag].")
@click.option("--force", is_flag=True, help="Replace what another user set the tag to.")
@click.option("--allow-rollback", is_flag=True, help="Take the remote's tag as it is, even if its log went back.")
@click.pass_obj
def push(output: Output, /, refs: tuple[Ref | Digest | ShortDigest, ...], tag: str | None, **options: Any) -> None:
    """Publish artifacts on a remote.

    All of them must exist, or none is sent. Missing objects are transferred first, each one hashed; the tag is set
    last. A tag that another user has set to another artifact since you last pulled or pushed it is left alone, and
    the command exits with 75.
    """
    from maskreg.workspace.several import tags_of

    if tag is not None and len(refs) > 1:
        raise click.UsageError("--tag names the tag of one artifact: push them one by one")
    space = workspace(output)
    # With the digest that each tag has now, unless there is one alone: its hints read better without.
    artifacts = tags_of(space, refs) if len(refs) > 1 else refs
    done = []
    with output.progress() as progress:
        for artifact in artifacts:
            pushed = verbs.push.push(artifact, tag=tag, **options, progress=progress, workspace=space)
            done.append(pushed)
            if not output.json:
                output.data(str(pushed.ref.pinned(pushed.digest)))
                output.note(
                    f"pushed to {pushed.remote}: {counted(pushed.sent_objects, 'object')}, "
                    f"{human_bytes(pushed.sent_bytes)} sent, {human_bytes(pushed.reused_bytes)} already there"
                )
    if output.json:
        output.document([pushed.to_json() for pushed in done])


@click.group(cls=Group, example="maskreg cache ls")
def cache() -> None:
    """List what was pulled, check it, and make room.

    An artifact with a name that no pull has set is this machine's own, and not in the cache.
    """


@cache.command("ls", example="maskreg cache ls --json")
@click.pass_obj
def list_(output: Output) -> None:
    """List what was pulled, the longest ago first."""
    items = verbs.cache.cached(workspace=workspace(output))
    output.answer(items)
    rows = [
        (f"{item.pulled_at:%Y-%m-%d %H:%M}", human_bytes(item.size), ", ".join(map(str, item.refs))) for item in items
    ]
    for line in table(rows, right=2) if rows else ():
        output.data(printable(line))
    output.note(f"{counted(len(items), 'artifact')}, {human_bytes(sum(item.size for item in items))}")


@cache.command(example="maskreg cache rm team/qwen3-8b-opd:v3")
@click.argument("refs", nargs=-1, required=True, type=REF, metavar="REF...")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be removed.")
@click.pass_obj
def rm(output: Output, refs: tuple[Ref, ...], dry_run: bool) -> None:
    """Remove artifacts that were pulled, with their names. A pull brings them back."""
    from maskreg.workspace.several import tags_of

    space = workspace(output)
    chosen = {tag.digest for tag in tags_of(space, refs) if tag.digest is not None}
    if own := chosen - {item.digest for item in verbs.cache.cached(workspace=space)}:
        raise NotFoundError(f"{min(own).short} is this machine's own, and not in the cache", hint="maskreg rm REF")
    _tell_pruned(output, verbs.cache.prune_cache(only=chosen, dry_run=dry_run, workspace=space))


@cache.command(example="maskreg cache prune --max-size 50GB --dry-run")
@click.option("--max-size", type=Parsed("size", parse_size), help="Its limit [default: the setting cache_size].")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be removed.")
@click.pass_obj
def prune(output: Output, max_size: int | None, dry_run: bool) -> None:
    """Remove what was pulled longest ago, until the cache is within its limit."""
    _tell_pruned(output, verbs.cache.prune_cache(max_bytes=max_size, dry_run=dry_run, workspace=workspace(output)))


def _tell_pruned(output: Output, pruned: verbs.cache.Pruned) -> None:
    output.answer({**pruned.to_json(), "freed": pruned.freed})
    for item in pruned.removed:
        output.data(f"{item.digest.short} {human_bytes(item.size)} {', '.join(map(str, item.refs))}")
    verb = "would free" if pruned.dry_run else "freed"
    output.note(f"{verb} {human_bytes(pruned.freed)}; {human_bytes(pruned.kept)} stay")
