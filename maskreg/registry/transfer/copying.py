"""Copying the objects of an artifact from one store to another: what that took so far."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from maskreg.digest import Digest
from maskreg.progress import Progress
from maskreg.store import Store

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Object


@dataclass
class Copying:
    """What was copied so far, over all rounds of settling; counted by many threads.

    Attributes:
        source: where the objects are.
        target: where they go.
        digest: the artifact.
        progress: progress callback, in bytes.
        count: objects copied.
        bytes: their size.
    """

    source: Store
    target: Store
    digest: Digest
    progress: Progress
    count: int = 0
    bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, entry: Object) -> None:
        """Count an object that was copied."""
        with self._lock:
            self.count += 1
            self.bytes += entry.size
