"""``maskreg remote``: registries elsewhere, by name."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from maskreg.errors import ConfigError

from .command import Group
from .output import Output

if TYPE_CHECKING:
    from maskreg.settings import Remote


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
@click.option("--catalog", default="", help="PostgreSQL index, postgresql+psycopg://host/database.")
@click.option("--endpoint", default="", help="Base URL of an S3-compatible service.")
@click.option("--region", default="", help="Region name.")
@click.option("--profile", default="", help="Profile of the shared AWS configuration.")
@click.option(
    "--addressing", default="auto", type=click.Choice(["auto", "path", "virtual"]), help="Where the bucket goes."
)
@click.option(
    "--checksums",
    default="when_required",
    type=click.Choice(["when_required", "when_supported"]),
    help="Request and response checksums.",
)
@click.option("--ca-bundle", default="", help="CA bundle for TLS.")
@click.option("--default", "as_default", is_flag=True, help="Make it the default remote.")
@click.pass_obj
def add(output: Output, /, name: str, url: str, catalog: str, as_default: bool, **options: str) -> None:
    """Add the registry at URL as NAME.

    URL is s3://bucket/prefix, file:///path or a path. First a small object is put, read, listed and deleted there,
    and create-only writes are tried: a store without them would lose tags, and is refused unless its catalog is
    PostgreSQL.
    """
    from maskreg.settings import Remote, StoreOptions, add_remote, checked, set_value

    from .places import probed, settings

    chosen = settings()
    if name in chosen.remotes:
        raise ConfigError(f"there is a remote called {name!r} already", hint=f"maskreg remote remove {name}")
    remote = checked(Remote(name, url, catalog, StoreOptions(**options)))  # type: ignore[arg-type]
    found = probed(remote)
    if not remote.keeps_tags(found.safe):
        raise ConfigError(
            f"{remote.url} cannot keep tags: {found.reason}",
            hint=f"maskreg remote add {name} {url} --catalog postgresql+psycopg://HOST/DATABASE",
        )
    add_remote(chosen.config_path, remote)
    if as_default:
        set_value(chosen.config_path, "default_remote", name)
    if output.json:
        output.document({**_row(remote), "create_only": found.create_only})
    else:
        output.note(
            f"added {name} ({remote.url}): put, get, list, delete work; create-only writes are {found.create_only}"
        )


@command.command("list", example="maskreg remote list --json")
@click.pass_obj
def list_(output: Output) -> None:
    """List the remotes; the default one is marked."""
    from .places import settings

    chosen = settings()
    default = chosen.meant_remote
    if output.json:
        output.document([{**_row(r), "default": r.name == default} for r in chosen.remotes.values()])
        return
    for remote in chosen.remotes.values():
        text = (
            remote.name
            if output.quiet
            else f"{remote.name}\t{remote.url}" + ("\tdefault" if remote.name == default else "")
        )
        output.data(text)


@command.command(example="maskreg remote remove lab")
@click.argument("name")
@click.pass_obj
def remove(output: Output, name: str) -> None:
    """Forget the remote NAME; what it holds stays there."""
    from maskreg.settings import remove_remote

    from .places import settings

    remove_remote(settings().config_path, name)
    if output.json:
        output.document({"name": name, "removed": True})
    else:
        output.note(f"removed {name}; its data is untouched")


@command.command(example="maskreg remote default lab")
@click.argument("name")
@click.pass_obj
def default(output: Output, name: str) -> None:
    """Make NAME the remote that is meant when none is named."""
    from maskreg.settings import set_value

    from .places import settings

    chosen = settings()
    set_value(chosen.config_path, "default_remote", chosen.remote(name).name)
    if output.json:
        output.document({"name": name, "default": True})
    else:
        output.note(f"{name} is the default remote")


@command.command(example="maskreg remote check lab")
@click.argument("name", required=False)
@click.pass_obj
def check(output: Output, name: str | None) -> None:
    """Try what a remote has to be able to do.

    Put, get, list, delete and create-only writes, on NAME or on the default remote.
    """
    from .places import probed, settings

    remote = settings().remote(name)
    found = probed(remote)
    if output.json:
        output.document({**_row(remote), "create_only": found.create_only, "reason": found.reason})
    else:
        output.data(f"{remote.name}: put, get, list, delete work; create-only writes are {found.create_only}")
    if not remote.keeps_tags(found.safe):
        raise ConfigError(f"{remote.url} cannot keep tags: {found.reason}", hint=f"maskreg remote remove {remote.name}")


def _row(remote: Remote) -> dict[str, object]:
    return dataclasses.asdict(remote)
