"""The catalog of a service: asked over HTTP, and kept up to date by the service itself.

What somebody may not see is not in the answers. To write into the index as such, and to see which machine has which
source, is for the service's admins; its clients need neither.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from maskreg.catalog.query import Answer, Query, SearchResult
from maskreg.catalog.records import Event, Indexed, Measurement
from maskreg.catalog.wire import answer_of, entry_row, event_of, indexed_of, measurement_of, query_row, record_row
from maskreg.closing import Closing
from maskreg.digest import Digest
from maskreg.errors import CorruptError
from maskreg.ref import Ref
from maskreg.store.connection import Connection
from maskreg.store.message import Message, understanding

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest
    from maskreg.store.reflog import RefEntry

T = TypeVar("T")

_EVERYTHING = Query()


class HttpCatalog(Closing):
    """The catalog of a service.

    Attributes:
        safe_refs: False: the service's own store refuses the second of two writers, and no lock is needed.
        keeps_up: True: the service indexes what is appended to its log.
    """

    safe_refs = False
    keeps_up = True

    def __init__(self, url: str) -> None:
        """Name the service; nothing is asked yet.

        Raises:
            ConfigError: not the URL of a service.
        """
        self._connection = Connection(url)
        self._locks: dict[str, threading.Lock] = {}
        self._locking = threading.Lock()

    def close(self) -> None:
        """Close every connection."""
        self._connection.close()

    # The index

    def put_artifact(self, digest: Digest, manifest: Manifest) -> None:
        """Index an artifact; for the service's admins."""
        from maskreg.artifact.manifest import dump_manifest

        self._ask("put-artifact", {"digest": digest, "manifest": json.loads(dump_manifest(manifest))}, dict, raw=True)

    def put_ref(self, entry: RefEntry) -> None:
        """Index an entry of a ref log; for the service's admins."""
        self._ask("put-ref", entry_row(entry), dict, raw=True)

    def drop_artifact(self, digest: Digest) -> None:
        """Remove an artifact from the index; for the service's admins."""
        self._ask("drop-artifact", {"digest": digest}, dict, raw=True)

    def answer(self, query: Query) -> Answer:
        """What matches, and what the index knows it lacks; of what somebody may see."""
        query.check()
        return self._ask("answer", query_row(query), answer_of)

    def search(self, query: Query = _EVERYTHING) -> list[SearchResult]:
        """Live refs that match, in the query's order."""
        return self.answer(query).results

    def get(self, digest: Digest) -> Indexed | None:
        """The indexed facts of an artifact; None when it is not indexed, or may not be seen."""
        return self._ask(
            "get", {"digest": digest}, lambda row: None if row["indexed"] is None else indexed_of(row["indexed"])
        )

    def number(self, ref: Ref) -> int:
        """Number of the indexed entry of a tag; 0 when there is none, or it may not be seen."""
        return self._ask("number", {"ref": [ref.project, ref.name, ref.tag]}, lambda row: int(row["number"]))

    def numbers(self, refs: Collection[Ref]) -> dict[Ref, int]:
        """Number of the indexed entry of each of these tags that is indexed and may be seen; a request for each."""
        return {ref: n for ref in refs if (n := self.number(ref))}

    def all_numbers(self) -> dict[Ref, int]:
        """Number of the indexed entry of every tag that may be seen; none where the service has too many to send."""
        return self.answer(Query(limit=0)).numbers or {}

    def followed(self) -> int | None:
        """None: the service follows its own store."""
        return None

    def follow(self, generation: int) -> None:
        """Do nothing: the service follows its own store."""

    def check(self) -> None:
        """Have the service compare its catalog with what was written; for its admins.

        Raises:
            CorruptError: the catalog is damaged.
        """
        for fault in self._ask("check", {}, lambda row: list(row["faults"]), raw=True):
            raise CorruptError("catalog", str(fault))

    def check_file(self) -> None:
        """Do nothing: the service does that."""

    def differing(
        self,
        entries: Iterable[RefEntry],
        manifests: Iterable[tuple[Digest, Manifest]],
        *,
        except_refs: Collection[Ref] = (),
        except_artifacts: Collection[Digest] = (),
    ) -> tuple[str, ...]:
        """What the service's index has otherwise than its own store; for its admins."""
        return self._ask("differing", {}, lambda row: tuple(map(str, row["faults"])), raw=True)

    def filled_from(self) -> str | None:
        """Uuid of the registry that the index was last rebuilt from; None when it never was."""
        return self._ask("filled-from", {}, lambda row: None if row["registry"] is None else str(row["registry"]))

    def rebuild(
        self,
        entries: Iterable[RefEntry],
        manifests: Iterable[tuple[Digest, Manifest]],
        *,
        registry: str = "",
        unread: Mapping[str, str] = MappingProxyType({}),
        followed: int | None = None,
    ) -> tuple[int, int, int]:
        """Have the service rebuild its index from its own store; for its admins. What is passed is not sent."""
        counts = ("refs", "artifacts", "lost")
        refs, artifacts, lost = self._ask("rebuild", {}, lambda row: [int(row[name]) for name in counts], raw=True)
        return refs, artifacts, lost

    # What only the catalog holds

    def record(self, measurement: Measurement) -> None:
        """Keep a measurement; for writers of a project that has the artifact."""
        self._send("/catalog/measurements", record_row(measurement), dict, repeatable=False)

    def measurements(self, digest: Digest, *, metrics: Collection[str] = (), against: str = "") -> list[Measurement]:
        """Measurements of an artifact that may be seen, in the order of recording."""
        row = {"digest": digest, "metrics": sorted(metrics), "against": against}
        return self._ask("measurements", row, lambda answer: list(map(measurement_of, answer["measurements"])))

    def log(self, event: Event) -> None:
        """Append an event to the audit log; for the service's admins."""
        self._ask("log", record_row(event), dict, raw=True, repeatable=False)

    def events(
        self,
        *,
        subject: str = "",
        action: str = "",
        by: str = "",
        project: str | None = None,
        since: datetime | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Event]:
        """The newest events of the audit log, newest first; for the service's admins."""
        at = None if since is None else since.isoformat()
        row = {"subject": subject, "action": action, "by": by, "project": project, "since": at, "before": before}
        return self._ask(
            "events", {**row, "limit": limit}, lambda answer: list(map(event_of, answer["events"])), raw=True
        )

    def saw_source(self, root: str, path: str) -> None:
        """Remember where the service has a checkpoint; for its admins."""
        self._ask("saw-source", {"root": root, "path": path}, dict, raw=True)

    def seen_sources(self, root: str) -> list[str]:
        """Paths where the service has seen a checkpoint; for its admins."""
        return self._ask("seen-sources", {"root": root}, lambda row: list(map(str, row["paths"])), raw=True)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the lock ``name`` among the threads of this catalog."""
        with self._locking:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            yield

    def _ask(
        self,
        action: str,
        row: Mapping[str, Any],
        read: Callable[[dict[str, Any]], T],
        *,
        raw: bool = False,
        repeatable: bool = True,
    ) -> T:
        if raw:
            return self._send(f"/catalog/raw/{action}", row, read, repeatable=repeatable)
        return self._read(Message("GET", f"/catalog/{action}", query={"arguments": json.dumps(row)}), read)

    def _send(self, path: str, row: Mapping[str, Any], read: Callable[[dict[str, Any]], T], *, repeatable: bool) -> T:
        headers = {"Content-Type": "application/json"}
        return self._read(Message("POST", path, {}, headers, _document(row), repeatable=repeatable), read)

    def _read(self, message: Message, read: Callable[[dict[str, Any]], T]) -> T:
        answer = self._connection.document(message)
        with understanding(self._connection.url):
            return read(answer)


def _document(row: Mapping[str, Any]) -> bytes:
    # An index takes entries that no log would. What a document cannot hold, a database cannot either.
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "replace")
