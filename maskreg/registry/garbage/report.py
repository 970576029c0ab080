"""What a garbage collection reports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from maskreg.digest import Digest
from maskreg.errors import CorruptError
from maskreg.result import Result


@dataclass(frozen=True)
class Collected:
    """An artifact that was deleted, or would be.

    Attributes:
        digest: the artifact.
        objects: how many objects it had.
        bytes: their size.
        modified: when the newest of them was written, by the store's clock (aware, UTC).
        complete: whether it had a manifest; what has none is the rest of an interrupted push or collection.
        names: tags that pointed to it, as far as its back references tell.
    """

    digest: Digest
    objects: int
    bytes: int
    modified: datetime
    complete: bool = True
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Garbage(Result):
    """What a garbage collection deleted, or would delete.

    Attributes:
        collected: artifacts that no name pointed to.
        spared: artifacts that were pushed, pulled or named during the collection.
        debris_files: files that interrupted work left in a store that is a directory.
        debris_bytes: their size.
        dry_run: nothing was deleted.
        damaged: tags whose latest entry cannot be read; the artifacts that they may name are kept.
        overtaken: artifacts of which this run deleted objects although it stood still for so long that others took it
            for dead; whoever pushed one of them meanwhile has to verify it.
        many: more than half of all artifacts and more than ten go, which a run has to be told to do.
    """

    collected: tuple[Collected, ...]
    spared: tuple[Digest, ...]
    debris_files: int
    debris_bytes: int
    dry_run: bool
    damaged: tuple[CorruptError, ...] = ()
    overtaken: tuple[Digest, ...] = ()
    many: bool = False

    @property
    def objects(self) -> int:
        """Stored objects of the collected artifacts."""
        return sum(item.objects for item in self.collected)

    @property
    def bytes(self) -> int:
        """Bytes of the collected artifacts and of the debris."""
        return sum(item.bytes for item in self.collected) + self.debris_bytes

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        return {**super().to_json(), "bytes": self.bytes}
