"""How long work tells a caller how far it is, without knowing who listens."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the progress of one piece of work; called from any thread.

    The command line draws bars from it; the default ignores everything.
    """

    def start(self, label: str, total_bytes: int) -> None:
        """A phase begins: ``label`` in the imperative, and how many bytes it will handle."""

    def advance(self, n_bytes: int) -> None:
        """``n_bytes`` more of the current phase are done."""


class Silent:
    """A listener that ignores everything."""

    def start(self, label: str, total_bytes: int) -> None:
        """Ignore."""

    def advance(self, n_bytes: int) -> None:
        """Ignore."""


SILENT = Silent()
