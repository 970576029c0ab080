"""``maskreg remote``: remote registries by name."""

from __future__ import annotations

import click

from maskreg.errors import ConfigError
from maskreg.workspace import verbs

from .command import Group, workspace
from .output import Output

_ADDRESSING = click.Choice(["auto", "path", "virtual"])
_CHECKSUMS = click.Choice(["when_required", "when_supported"])


@click.group(cls=Group, example="maskreg remote add lab s3://masks/team --default")
def command() -> None:
    """Add, list, check and remove remotes."""


@command.command(
    example="""
    maskreg remote add lab s3://masks/team --endpoint https://s3.lab.example --default
    maskreg remote add nas /mnt/nas/masks
    """
)
@click.argument("name")
@click.argument("url")
@click.option("--catalog", default="", help="Catalog in PostgreSQL: postgresql+psycopg://host/database.")
@click.option("--endpoint", default="", help="Base URL of an S3-compatible service.")
@click.option("--region", default="", help="Region name.")
@click.option("--profile", default="", help="Profile of the shared AWS configuration.")
@click.option("--addressing", default="auto", type=_ADDRESSING, help="Bucket in path or host name.")
@click.option("--checksums", default="when_required", type=_CHECKSUMS, help="When to send and check checksums.")
@click.option("--ca-bundle", default="", help="File of CA certificates for TLS.")
@click.option("--project-key", "project_keys", multiple=True, metavar="PROJECT=KEY", help="Its key (repeatable).")
@click.option("--default", "as_default", is_flag=True, help="Make it the default remote; the first one is.")
@click.pass_obj
def add(output: Output, /, name: str, url: str, as_default: bool, **options: str) -> None:
    """Add the registry at URL as NAME.

    URL is s3://bucket/prefix, file:///path or a path. First a small object is put, read, listed and deleted, and
    create-only writes are tried. A store without them could lose tags; it is refused.
    A folder that does not exist is made. A read-only store is accepted when there is a registry in it, and a service
    before you log in to it.
    The catalog is opened too. With --project-key, only a project that this key signs, or one that it handed over to,
    is ever read; without, the key that is seen first is trusted.
    """
    added = verbs.remotes.add(name, url, default=as_default, workspace=workspace(output), **options)  # type: ignore[arg-type]
    if not output.printed(added):
        output.note(f"added {name} ({added.url}): {_works(added)}")
        if added.default:
            output.note(f"{name} is the default remote")


@command.command("list", example="maskreg remote list --json")
@click.pass_obj
def list_(output: Output) -> None:
    """List the remotes; the default one is marked."""
    entries = verbs.remotes.list(workspace=workspace(output))
    output.answer(entries)
    for entry in entries:
        mark = "\tdefault" if entry.default else ""
        output.data(entry.name if output.quiet else f"{entry.name}\t{entry.url}{mark}")


@command.command(example="maskreg remote remove lab")
@click.argument("name")
@click.pass_obj
def remove(output: Output, name: str) -> None:
    """Forget the remote NAME; its data stays where it is."""
    verbs.remotes.remove(name, workspace=workspace(output))
    output.tell({"name": name, "removed": True}, f"removed {name}; its data is untouched")


@command.command(example="maskreg remote check lab")
@click.argument("name", required=False)
@click.option("--allow-rollback", is_flag=True, help="Take the registry and all its tags as they are now.")
@click.pass_obj
def check(output: Output, name: str | None, allow_rollback: bool) -> None:
    """Check that a remote can do what a registry needs.

    Tries put, get, list, delete and create-only writes on NAME, or on the default remote, and opens its catalog. One
    that can only be read is fine for pull, and said to be read-only. Another registry than the one that was there
    before is refused.
    With --allow-rollback it is taken, and so is every tag whose log went back; each is listed.
    """
    checked = verbs.remotes.check(name, allow_rollback=allow_rollback, workspace=workspace(output))
    if not output.printed(checked):
        output.data(f"{checked.name}: {_works(checked, usable_catalog=bool(checked.catalog))}")
    if not checked.keeps_tags:
        raise ConfigError(
            f"{checked.url} cannot keep tags: {checked.reason}", hint=f"maskreg remote remove {checked.name}"
        )


def _works(remote: verbs.remotes.AddedRemote, *, usable_catalog: bool = False) -> str:
    catalog = "; the catalog is usable" if usable_catalog else ""
    if remote.create_only == "untried" and remote.url.startswith(("http://", "https://")):
        return f"as far as this machine is logged in, read-only{catalog}"
    if not remote.writable:
        return f"read-only: pull works, push does not{catalog}"
    return f"put, get, list, delete work; create-only writes are {remote.create_only}{catalog}"
