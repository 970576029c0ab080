"""Which registry the settings say to ask for an artifact, and fetching it from that one."""

from __future__ import annotations

from collections.abc import Collection

from maskreg.errors import UnavailableError
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry.registry import Registry
from maskreg.registry.transfer.pull import DEFAULT_PARTS, Pulled, pull
from maskreg.settings import Settings


def open_remote(settings: Settings, name: str | None = None) -> Registry:
    """The remote of that name, or the default one; its caller closes it.

    Raises:
        ConfigError: there is no such remote, or several and no default.
        UnavailableError: offline is set.
    """
    remote = settings.remote(name)
    if settings.offline:
        raise UnavailableError(f"remote {remote.name} is not asked while offline is set", offline=True)
    return Registry.remote(remote, settings)


def remote_to_ask(settings: Settings, name: str | None = None) -> Registry | None:
    """The remote that a pull asks; None when it uses the local registry only. Its caller closes it.

    That is the named remote, or the default one; none without a name when there are no remotes, or offline is set.

    Raises:
        ConfigError: there is no such remote, or several and no default.
        UnavailableError: a remote was named, and offline is set.
    """
    return open_remote(settings, name) if asks_remote(settings, name) else None


def asks_remote(settings: Settings, name: str | None) -> bool:
    """Whether a pull asks a remote: a named one always, the default one unless offline is set."""
    return name is not None or bool(settings.remotes and not settings.offline)


def fetch(
    settings: Settings,
    ref: Ref,
    *,
    remote: str | None = None,
    parts: Collection[str] | None = DEFAULT_PARTS,
    progress: Progress = SILENT,
) -> Pulled:
    """Bring an artifact into the local registry, or find it there.

    Args:
        settings: say where the local registry is and which remotes there are.
        ref: the artifact.
        remote: name of a remote; the default one when left out.
        parts: what to bring.
        progress: progress callback, in bytes read.

    Raises:
        MaskregError: as :func:`remote_to_ask` and :func:`maskreg.registry.transfer.pull.pull`.
    """
    with Registry.local(settings) as local:
        source = remote_to_ask(settings, remote)
        if source is None:
            return pull(local, None, ref, parts=parts, progress=progress, jobs=settings.jobs)
        with source:
            return pull(local, source, ref, parts=parts, progress=progress, jobs=settings.jobs)
