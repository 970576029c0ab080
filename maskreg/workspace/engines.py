"""The engine on which a use case works on blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from maskreg.engine import running_on
from maskreg.workspace.workspace import Workspace

_is_chosen: ContextVar[bool] = ContextVar("maskreg_engine_is_chosen", default=False)


@contextmanager
def engine_of(space: Workspace, label: str) -> Iterator[None]:
    """Hand out blocks on the engine of the settings for the time of a ``with``.

    A use case within another one changes nothing: a sweep runs on one engine, and so does each of its extractions.

    Args:
        space: has the settings.
        label: what runs, such as ``extract``, as the cluster's own tools show it.

    Raises:
        ConfigError: the settings are wrong.
    """
    if _is_chosen.get():
        yield
        return
    settings = space.settings
    with running_on(settings.engine, workers=settings.workers, label=f"maskreg {label}"):
        token = _is_chosen.set(True)
        try:
            yield
        finally:
            _is_chosen.reset(token)
