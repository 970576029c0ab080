"""``maskreg remote``: remote registries by name."""

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
@click.option("--catalog", default="", help="Catalog in PostgreSQL: postgresql+psycopg://host/database.")
@click.option("--endpoint", default="", help="Base URL of an S3-compatible service.")
@click.option("--region", default="", help="Region name.")
@click.option("--profile", default="", help="Profile of the shared AWS configuration.")
@click.option(
    "--addressing",
    default="auto",
    type=click.Choice(["auto", "path", "virtual"]),
    help="Bucket in path or host name.",
)
@click.option(
    "--checksums",
    default="when_required",
    type=click.Choice(["when_required", "when_supported"]),
    help="When to use request and response checksums.",
)
@click.option("--ca-bundle", default="", help="File of CA certificates for TLS.")
@click.option("--default", "as_default", is_flag=True, help="Make it the default remote.")
@click.pass_obj
def add(output: Output, /, name: str, url: str, catalog: str, as_default: bool, **options: str) -> None:
    """Add the registry at URL as NAME.

    URL is s3://bucket/prefix, file:///path or a path. First a small object is put, read, listed and deleted, and
    create-only writes are tried. A store without them could lose tags; it is refused unless its catalog is PostgreSQL.
    """
    from maskreg.settings import Remote, StoreOptions, add_remote, checked, set_value

    from .places import probed, settings

    chosen = settings()
    if name in chosen.remotes:
        raise ConfigError(f"there is already a remote called {name!r}", hint=f"maskreg remote remove {name}")
    remote = checked(Remote(name, url, catalog, StoreOptions(**options)))  # type: ignore[arg-type]
    probe = probed(remote)
    if not remote.keeps_tags(probe.safe):
        raise ConfigError(
            f"{remote.url} cannot keep tags: {probe.reason}",
            hint=f"maskreg remote add {name} {url} --catalog postgresql+psycopg://HOST/DATABASE",
        )
    add_remote(chosen.config_path, remote)
    if as_default:
        set_value(chosen.config_path, "default_remote", name)
    if output.json:
        output.document({**_row(remote), "create_only": probe.create_only})
    else:
        output.note(
            f"added {name} ({remote.url}): put, get, list, delete work; create-only writes are {probe.create_only}"
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
    """Forget the remote NAME; its data stays where it is."""
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
    """Make NAME the default remote."""
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
    """Check that a remote can do what a registry needs.

    Tries put, get, list, delete and create-only writes on NAME, or on the default remote.
    """
    from .places import probed, settings

    remote = settings().remote(name)
    probe = probed(remote)
    if output.json:
        output.document({**_row(remote), "create_only": probe.create_only, "reason": probe.reason})
    else:
        output.data(f"{remote.name}: put, get, list, delete work; create-only writes are {probe.create_only}")
    if not remote.keeps_tags(probe.safe):
        raise ConfigError(f"{remote.url} cannot keep tags: {probe.reason}", hint=f"maskreg remote remove {remote.name}")


def _row(remote: Remote) -> dict[str, object]:
    return dataclasses.asdict(remote)
