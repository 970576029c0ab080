"""Db: schema and content of the catalog, the index of a registry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from maskreg.catalog import open_catalog
from maskreg.errors import ConfigError, stating
from maskreg.progress import SILENT, Progress
from maskreg.registry import Rebuilt, Registry
from maskreg.result import Result
from maskreg.workspace.workspace import Workspace, registry_of


@dataclass(frozen=True)
class Upgraded(Result):
    """An upgrade of a catalog.

    Attributes:
        before: schema revision before; None when there was no schema.
        after: schema revision now.
    """

    before: str | None
    after: str | None


@dataclass(frozen=True)
class Usable(Result):
    """A catalog that can be used.

    Attributes:
        revision: schema revision; None when there is no schema.
        usable: false while it is still to be made; a catalog that cannot be used is an error.
    """

    revision: str | None
    usable: bool = True


def upgrade(remote: str | None = None, *, workspace: Workspace | None = None) -> Upgraded:
    """Upgrade a catalog to the schema of this version; ``remote`` and errors as for :func:`rebuild`."""
    from maskreg.catalog.schema import current, upgrade

    with _registry(remote, workspace) as registry:
        url = registry.index.url
        before = current(url)
        upgrade(url)
        return Upgraded(before, current(url))


def check(remote: str | None = None, *, workspace: Workspace | None = None) -> Usable:
    """Open a catalog as every use case does; ``remote`` and errors as for :func:`rebuild`."""
    from maskreg.catalog.schema import current

    with _registry(remote, workspace) as registry:
        if registry.index.is_unmade():
            return Usable(None, usable=False)
        open_catalog(registry.index.url).close()
        return Usable(current(registry.index.url))


def rebuild(remote: str | None = None, *, progress: Progress = SILENT, workspace: Workspace | None = None) -> Rebuilt:
    """Recreate a catalog from the store. Measurements and events are kept.

    Raises:
        UnavailableError: the database or the remote does not answer, or offline is set.
        DataError: the catalog is damaged.
    """
    with _registry(remote, workspace) as registry:
        return registry.index.rebuild(progress=progress)


@contextmanager
def _registry(remote: str | None, workspace: Workspace | None) -> Iterator[Registry]:
    with registry_of(remote, workspace) as (_, registry):
        if registry.served:
            raise ConfigError(f"{registry.name} is a server, which keeps its catalog itself")
        if not registry.index.url:
            raise ConfigError(
                f"{registry.name} has no catalog; its store alone is the registry",
                setting=f"remotes.{registry.name}.catalog",
                new_value="postgresql+psycopg://HOST/DATABASE",
            )
        # The catalog does not know which remote it belongs to.
        with stating(remote=registry.remote_name):
            yield registry
