"""``maskreg db``: the catalog's schema and content."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from maskreg.errors import ConfigError, MaskregError
from maskreg.words import counted

from .command import Group
from .output import Output

if TYPE_CHECKING:
    from maskreg.registry import Registry


@click.group(cls=Group, example="maskreg db upgrade")
def command() -> None:
    """Care for the catalog, a registry's index."""


def _remote_option(function: click.decorators.FC) -> click.decorators.FC:
    return click.option("--remote", help="The catalog of a remote instead of the local one.")(function)


@command.command(example="maskreg db upgrade --remote lab")
@_remote_option
@click.pass_obj
def upgrade(output: Output, remote: str | None) -> None:
    """Bring the catalog to this version's schema."""
    from maskreg.catalog import current, upgrade

    with _advising(remote):
        url = _registry(remote).catalog_url
        before = current(url)
        upgrade(url)
        after = current(url)
    if output.json:
        output.document({"before": before, "after": after})
    else:
        output.note(f"schema {before or 'none'} -> {after}")


@command.command(example="maskreg db current")
@_remote_option
@click.pass_obj
def current(output: Output, remote: str | None) -> None:
    """Print the schema revision that the catalog has."""
    from maskreg.catalog import current

    with _advising(remote):
        revision = current(_registry(remote).catalog_url)
    if output.json:
        output.document({"revision": revision})
    else:
        output.data(revision or "none")


@command.command(example="maskreg db check --remote lab")
@_remote_option
@click.pass_obj
def check(output: Output, remote: str | None) -> None:
    """Open the catalog as any command would; exit 78 when its schema is not this version's."""
    from maskreg.catalog import Catalog, current

    with _advising(remote):
        url = _registry(remote).catalog_url
        Catalog.open(url).close()
        revision = current(url)
    if output.json:
        output.document({"revision": revision, "usable": True})
    else:
        output.data(f"usable, schema {revision}")


@command.command(example="maskreg db rebuild")
@_remote_option
@click.pass_obj
def rebuild(output: Output, remote: str | None) -> None:
    """Recreate the index from the store; measurements and events stay."""
    with _advising(remote):
        done = _registry(remote).index.rebuild()
    if output.json:
        damaged = [error.message for error in done.damaged]
        output.document({"refs": done.refs, "artifacts": done.artifacts, "damaged": damaged})
        return
    for error in done.damaged:
        output.note(f"left out: {error.message}")
    output.note(f"indexed {counted(done.refs, 'tag')} and {counted(done.artifacts, 'artifact')}")


def _registry(remote: str | None) -> Registry:
    from .places import registry

    found = registry(remote)
    if not found.catalog_url:
        raise ConfigError(
            f"{found.name} has no catalog of its own; its store is the registry",
            hint=f"maskreg config set remotes.{found.name}.catalog postgresql+psycopg://HOST/DATABASE",
        )
    return found


@contextmanager
def _advising(remote: str | None) -> Iterator[None]:
    from .places import catalog_step

    try:
        yield
    except MaskregError as error:
        if error.hint.startswith("maskreg db "):
            error.hint = catalog_step(error, remote)
        raise
