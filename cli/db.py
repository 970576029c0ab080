"""``maskreg db``: schema and content of the catalog."""

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
    """Maintain the catalog, the index of a registry."""


def _remote_option(function: click.decorators.FC) -> click.decorators.FC:
    return click.option("--remote", help="Use the catalog of a remote instead of the local one.")(function)


@command.command(example="maskreg db upgrade --remote lab")
@_remote_option
@click.pass_obj
def upgrade(output: Output, remote: str | None) -> None:
    """Upgrade the catalog to this version's schema."""
    from maskreg.catalog.sql import current, upgrade

    with _catalog_hints(remote):
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
    """Print the catalog's schema revision."""
    from maskreg.catalog.sql import current

    with _catalog_hints(remote):
        revision = current(_registry(remote).catalog_url)
    if output.json:
        output.document({"revision": revision})
    else:
        output.data(revision or "none")


@command.command(example="maskreg db check --remote lab")
@_remote_option
@click.pass_obj
def check(output: Output, remote: str | None) -> None:
    """Open the catalog as other commands do; exit 78 when its schema is not this version's."""
    from maskreg.catalog import open_catalog
    from maskreg.catalog.sql import current

    with _catalog_hints(remote):
        url = _registry(remote).catalog_url
        open_catalog(url).close()
        revision = current(url)
    if output.json:
        output.document({"revision": revision, "usable": True})
    else:
        output.data(f"usable, schema {revision}")


@command.command(example="maskreg db rebuild")
@_remote_option
@click.pass_obj
def rebuild(output: Output, remote: str | None) -> None:
    """Recreate the index from the store; measurements and events are kept."""
    with _catalog_hints(remote):
        result = _registry(remote).index.rebuild()
    if output.json:
        damaged = [error.message for error in result.damaged]
        output.document({"refs": result.refs, "artifacts": result.artifacts, "damaged": damaged})
        return
    for error in result.damaged:
        output.note(f"left out: {error.message}")
    output.note(f"indexed {counted(result.refs, 'tag')} and {counted(result.artifacts, 'artifact')}")


def _registry(remote: str | None) -> Registry:
    from .places import registry

    opened = registry(remote)
    if not opened.catalog_url:
        raise ConfigError(
            f"{opened.name} has no catalog; its store alone is the registry",
            hint=f"maskreg config set remotes.{opened.name}.catalog postgresql+psycopg://HOST/DATABASE",
        )
    return opened


@contextmanager
def _catalog_hints(remote: str | None) -> Iterator[None]:
    from .places import catalog_step

    try:
        yield
    except MaskregError as error:
        if error.hint.startswith("maskreg db "):
            error.hint = catalog_step(error, remote)
        raise
