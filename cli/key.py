"""``maskreg key``: keys that sign the tags of a project."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from maskreg.errors import DataError, MaskregError
from maskreg.ref import Ref
from maskreg.words import counted
from maskreg.workspace import verbs

from .command import Group, workspace
from .output import Output
from .table import table
from .values import DURATION, REF

if TYPE_CHECKING:
    from maskreg.registry.signing import Signatures, SignedTag
    from maskreg.registry.verify import Damage


_REMOTE = click.option("--remote", help="The project of a remote, not of the local registry.")
_FRESH = click.option("--fresh", type=DURATION, help="Readers refuse a project not refreshed for so long; 0d: never.")


@click.group(cls=Group, example="maskreg key create team --remote lab")
def command() -> None:
    """Manage the keys that sign tags."""


@command.command(example="maskreg key create team --remote lab --fresh 7d")
@click.argument("project")
@_REMOTE
@_FRESH
@click.option("--replace-lost", is_flag=True, help="The project's key is lost; readers have to be told of the new one.")
@click.pass_obj
def create(output: Output, project: str, remote: str | None, fresh: timedelta | None, replace_lost: bool) -> None:
    """Make a key that signs the tags of PROJECT from now on.

    It vouches for all tags as they are. From then on a tag of PROJECT that was set without the private key, which stays
    on this machine, is refused by all readers. They trust the key that they see first, or one that they were told.
    """
    key = verbs.keys.create(project, remote=remote, fresh=fresh, replace_lost=replace_lost, workspace=workspace(output))
    _show(output, key, f"{key.key} signs {project} in {key.registry} from now on")
    _keep_a_copy(output, key)


@command.command("list", example="maskreg key list --remote lab")
@click.argument("project", required=False)
@_REMOTE
@click.pass_obj
def list_(output: Output, project: str | None, remote: str | None) -> None:
    """List the keys of PROJECT, or of all projects: number, key, since when, by whom.

    A star marks a key whose private part is on this machine. With --quiet it prints those that sign now, whole: what to
    tell readers for `remote add --project-key`.
    """
    listed = verbs.keys.list(project, remote=remote, workspace=workspace(output))
    output.answer(listed)
    if output.quiet:
        for key in listed:
            if key.current:
                output.data(key.key)
        return
    rows = []
    for key in listed:
        state = "signs" if key.current else "replaced"
        if key.good_until is not None:
            state += f", good until {key.good_until:%Y-%m-%d %H:%M}"
        rows.append(
            (key.project, str(key.n), key.key.short + "*" * key.private, f"{key.at:%Y-%m-%d %H:%M}", key.by, state)
        )
    for line in table(rows, right=5) if rows else ():
        output.data(line)


@command.command(example="maskreg key rotate team --remote lab")
@click.argument("project")
@_REMOTE
@_FRESH
@click.pass_obj
def rotate(output: Output, project: str, remote: str | None, fresh: timedelta | None) -> None:
    """Replace the key of PROJECT with a new one, and revoke the old one.

    The old key signs the new one, and nothing after that: a copy of it is worth nothing any more. Readers
    who trusted the old key trust the new one.
    """
    key = verbs.keys.rotate(project, remote=remote, fresh=fresh, workspace=workspace(output))
    _show(output, key, f"{key.key} signs {project} in {key.registry} from now on, and the key before it nothing")
    _keep_a_copy(output, key)


@command.command(example="maskreg key export team team.pem --remote lab")
@click.argument("project")
@click.argument("file", type=click.Path())
@_REMOTE
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@click.pass_obj
def export(output: Output, project: str, file: str, remote: str | None, force: bool) -> None:
    """Write the private key of PROJECT to FILE, which only its owner can read."""
    written = verbs.keys.export(project, file, remote=remote, force=force, workspace=workspace(output))
    output.tell(written, f"{file} holds the private key of {written.key}: with it, anyone can sign {project}")


@command.command("import", example="maskreg key import team.pem")
@click.argument("file", type=click.Path())
@click.pass_obj
def import_(output: Output, file: str) -> None:
    """Keep the private key in FILE on this machine, which can then sign with it."""
    kept = verbs.keys.import_(file, workspace=workspace(output))
    output.tell(kept, f"this machine signs with {kept.key}")


@command.command(example="maskreg key trust team ed25519:KEY --remote lab")
@click.argument("project")
@click.argument("key")
@_REMOTE
@click.pass_obj
def trust(output: Output, project: str, key: str, remote: str | None) -> None:
    """Trust KEY as the one of PROJECT, in place of what this machine trusted until now.

    KEY is what its owner says it is, and not what the registry says.
    """
    trusted = verbs.keys.trust(project, key, remote=remote, workspace=workspace(output))
    _show(output, trusted, f"this machine trusts {trusted.key} for {project} in {trusted.registry}")


@command.command(example="maskreg key sign team/qwen3-8b-opd:v3 --remote lab")
@click.argument("refs", nargs=-1, required=True, type=REF, metavar="REF...")
@_REMOTE
@click.pass_obj
def sign(output: Output, refs: tuple[Ref, ...], remote: str | None) -> None:
    """Sign what tags say now, for tags that were set without the key of their project.

    Look first at what they say: maskreg verify --signatures REF.
    """
    show_signatures(output, verbs.keys.sign(*refs, remote=remote, workspace=workspace(output)))


@command.command(example="maskreg key refresh team --remote lab")
@click.argument("project")
@_REMOTE
@click.pass_obj
def refresh(output: Output, project: str, remote: str | None) -> None:
    """State, signed and dated, how the tags of PROJECT stand now.

    A project whose key was made with --fresh needs this regularly, as from cron; a server does it by itself.
    """
    key = verbs.keys.refresh(project, remote=remote, workspace=workspace(output))
    until = f", good until {key.good_until:%Y-%m-%d %H:%M:%S} UTC" if key.good_until else ""
    _show(output, key, f"{key.key} says how the tags of {project} in {key.registry} stand{until}")


def _show(output: Output, key: verbs.keys.ProjectKey, sentence: str) -> None:
    if output.json:
        output.document(key.to_json())
    elif output.quiet:
        output.data(key.key)
    else:
        output.note(sentence)


def _keep_a_copy(output: Output, key: verbs.keys.ProjectKey) -> None:
    if not output.json:
        option = "" if key.registry == "local" else f" --remote {key.registry}"
        output.note(f"keep a copy of the private key in a safe place: maskreg key export {key.project} FILE{option}")


NOT_SIGNED = 1
"""Exit code when a tag is in a project that has no key."""


def show_signatures(output: Output, report: Signatures) -> None:
    """Print which key vouches for each tag, and end the command with 1 when some are unsigned."""
    if output.json:
        # The document says what is wrong; a second one would not parse beside it.
        output.reported = True
        output.document(report.to_json())
    else:
        for line in table([_row(tag) for tag in report.tags], right=4) if report.tags else ():
            output.data(line)
        for tag in report.wrong:
            output.damage(tag.fault, tag.error)
        states = Counter(tag.state for tag in report.tags)
        output.note(", ".join(f"{counted(n, 'tag')} {state}" for state, n in states.items()) or "no tags")
    if report.wrong:
        tags = counted(len(report.wrong), "tag")
        raise problems(f"no trusted key vouches for {tags} in {report.registry}", report.wrong)
    if report.unsigned:
        click.get_current_context().exit(NOT_SIGNED)


def problems(message: str, wrong: Sequence[Damage | SignedTag]) -> MaskregError:
    """The error about damage that was printed; about one, or as JSON, with its next step."""
    error = wrong[0].error
    if error is None or (len(wrong) > 1 and not click.get_current_context().ensure_object(Output).json):
        return DataError(message, hint="see each next step above")
    # The table has the next step under the class of the damage.
    same = copy(error)
    same.message = message
    return same


def _row(tag: SignedTag) -> tuple[str, str, str, str]:
    if tag.key is None or tag.since is None:
        return str(tag.ref), tag.state, "-", "-"
    return str(tag.ref), tag.state, tag.key.short, f"since {tag.since:%Y-%m-%d %H:%M}"
