"""Which registry a command is about: the local one, or a remote by name."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from maskreg.errors import MaskregError, UnavailableError

if TYPE_CHECKING:
    from pathlib import Path

    from maskreg.digest import Digest
    from maskreg.registry import Registry
    from maskreg.settings import Remote, Settings
    from maskreg.store.probe import Probe
    from maskreg.workspace.recording import Recorded

    from .output import Output


def settings() -> Settings:
    """The settings of this run."""
    from maskreg.settings import Settings

    return Settings.load()


def local(chosen: Settings | None = None) -> Registry:
    """The local registry of these settings, by default of this run's; closed when the command ends."""
    from maskreg.registry import Registry

    return click.get_current_context().with_resource(Registry.local(chosen or settings()))


def remote(chosen: Settings, name: str | None) -> Registry:
    """The remote of that name, or the one that is meant without a name; closed when the command ends.

    Raises:
        ConfigError: there is no such remote.
        UnavailableError: the settings say that this machine is offline.
    """
    from maskreg.registry import Registry

    found = chosen.remote(name)
    if chosen.offline:
        raise UnavailableError(
            f"{found.name} is not asked while offline is set", hint="maskreg config show --origin says where"
        )
    return click.get_current_context().with_resource(Registry.remote(found))


def registry(name: str | None) -> Registry:
    """The remote of that name, or the local registry when there is no name."""
    return remote(settings(), name) if name else local()


def probed(there: Remote) -> Probe:
    """What the store of a remote turns out to do when it is tried."""
    from maskreg.registry import Registry
    from maskreg.store.probe import probe

    with Registry.remote(there) as opened:
        return probe(opened.store)


def remember(here: Registry, root: str, path: Path) -> None:
    """Note where a checkpoint of this identity lies, so that a later ``apply`` finds it."""
    # A convenience: a catalog that cannot be written must not fail work that is done.
    with suppress(MaskregError):
        if here.catalog is not None:
            here.catalog.saw_source(root, str(path.absolute()))


def recorded(there: Registry, digest: Digest) -> Recorded | None:
    """Overlaps that were recorded of an artifact; None when the catalog cannot be asked."""
    from maskreg.workspace.recording import recorded as ask

    with suppress(MaskregError):
        return None if there.catalog is None else ask(there.catalog, digest)
    return None


def note_catalog(output: Output, used: Registry) -> None:
    """Say so when the catalog could not be used or written: the store is right, the index is behind."""
    if used.catalog_problem is not None:
        again = catalog_step(used.catalog_problem, "" if used.root else used.name)
        output.note(f"note: the catalog of {used.name} was not used: {used.catalog_problem}; then: {again}")


def catalog_step(problem: MaskregError | None, remote: str | None) -> str:
    """What to run against a problem of a catalog; the catalog itself does not know which remote it belongs to."""
    # Any other advice, such as a database to create, is told where the error is; afterwards the index is behind.
    step = problem.hint if problem and problem.hint.startswith("maskreg db ") else "maskreg db rebuild"
    return f"{step} --remote {remote}" if remote else step
