"""The engine on which a use case works on blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from maskreg.engine import running_on
from maskreg.workspace.workspace import Workspace


@contextmanager
def engine_of(space: Workspace, label: str) -> Iterator[None]:
    """Hand out blocks on the engine of the settings for the time of a ``with``.

    Args:
        space: has the settings.
        label: what runs, such as ``extract``, as the cluster's own tools show it.

    Raises:
        ConfigError: the settings are wrong.
    """
    settings = space.settings
    with running_on(settings.engine, workers=settings.workers, label=f"maskreg {label}"):
        yield
