"""Snapshots: the latest entry of every tag in a few large objects, so that nobody need list the log to have them.

The log of a million tags takes ten thousand requests to list, and a million to read the latest entries. Whoever has
just done both, as a collection of garbage has, writes down what it read::

    start = the journal's latest whole generation                 before the log is listed
    list refs/, read the latest entry of each tag
    put     snapshots/<id>/<6-digit part>.z                       entries, compressed together
    create  snapshots/<20-digit s>.json                           the record: start, and the sha256 of each part

and whoever wants all of them reads that, and then of what moved since (:mod:`maskreg.store.journal`)::

    the latest record; every part has the sha256 that it says?    otherwise: as if there were no snapshot
    the changes since start, all kept?                            otherwise: as if there were no snapshot
    a tag that did not move                                       its entry in the snapshot
    one that did, and one that could not be read then             its log is looked at

The record comes last and is created, never replaced, so a writer that dies has written nothing. A snapshot is a hint,
as the journal is: to resolve, move, pull or verify a tag and to collect garbage its log is read.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from tempfile import TemporaryFile
from typing import IO, Any
from uuid import uuid4

from maskreg.closing import Closing
from maskreg.digest import Digest, parse_sealed, sealed
from maskreg.errors import CorruptError, DataError, NotFoundError
from maskreg.limits import LIMITS
from maskreg.ref import Ref
from maskreg.store.base import Store
from maskreg.store.entry import REFS, RefEntry, ref_of

SNAPSHOTS = "snapshots/"
"""Prefix of all snapshots."""

MANY = 10_000
"""Tags from which on a snapshot is worth its objects; fewer are listed with a few requests."""

PART_BYTES = 8 << 20
"""Bytes of entries that are compressed together."""

_SCHEMA = "maskreg.snapshot/1"
_RECORD = re.compile(re.escape(SNAPSHOTS) + r"([0-9]{20})\.json")
_RECORD_BYTES = 4 << 20
_MOST_UNREAD = 1_000
_KEPT = 2
_LEFT_ALONE = timedelta(days=1)
_READERS = 16


class SnapshotWriter:
    """Writes one snapshot, entry by entry.

    Args:
        store: where it goes.
        start: the journal's latest whole generation, from before the log was listed.
    """

    def __init__(self, store: Store, start: int) -> None:
        self._store = store
        self._start = start
        self._folder = uuid4().hex
        self._parts: list[Digest] = []
        self._entries: list[bytes] = []
        self._size = self._tags = 0

    def add(self, entry: RefEntry) -> None:
        """Take in the latest entry of another tag."""
        line = b"%s %s\n" % (entry.key.encode(), entry.to_bytes())
        if self._size + len(line) > PART_BYTES:
            self._put_part()
        self._entries.append(line)
        self._size += len(line)
        self._tags += 1

    def finish(self, unread: Sequence[Ref]) -> None:
        """Make a snapshot of it, and delete older ones.

        Args:
            unread: tags whose latest entry could not be read; of too many there is no snapshot.
        """
        self._put_part()
        known = _records(self._store)
        record = {
            "schema": _SCHEMA,
            "folder": self._folder,
            "parts": self._parts,
            "start": self._start,
            "tags": self._tags,
            "unread": [ref.path for ref in unread],
        }
        number = max(known, default=0) + 1
        data = sealed(record)
        # Of two that end at the same time one is enough; the parts of the other are deleted in a day.
        if len(unread) <= _MOST_UNREAD and len(data) <= _RECORD_BYTES and self._store.create(_key(number), data):
            known.append(number)
        self._forget(known)

    def _put_part(self) -> None:
        if self._entries:
            data = zlib.compress(b"".join(self._entries), 1)
            self._store.put(_part(self._folder, len(self._parts)), data)
            self._parts.append(Digest.of(data))
        self._entries, self._size = [], 0

    def _forget(self, known: list[int]) -> None:
        kept = sorted(known)[-_KEPT:]
        self._store.delete([_key(number) for number in known if number not in kept])
        used = {self._folder}
        for number in kept:
            try:
                used.add(_record(self._store, number)["folder"])
            except (DataError, NotFoundError, KeyError):
                continue  # nobody can read its parts
        before = self._store.clock() - _LEFT_ALONE
        for info in list(self._store.list(SNAPSHOTS)):
            if not _RECORD.fullmatch(info.key) and info.key.split("/")[1] not in used and info.modified < before:
                self._store.delete([info.key])


@dataclass(frozen=True)
class Snapshot(Closing):
    """A snapshot whose every part was read and has the right sha256.

    Attributes:
        start: generation of the journal since which tags may have moved.
        unread: tags that it lacks because their latest entry could not be read.
        file: the parts, one after another; temporary.
        sizes: bytes of each part.
    """

    start: int
    unread: tuple[Ref, ...]
    file: IO[bytes]
    sizes: tuple[int, ...]

    def close(self) -> None:
        """Delete the temporary file."""
        self.file.close()

    def entries(self) -> Iterator[RefEntry]:
        """Its entries, as they are in the log.

        Raises:
            DataError: somebody has written what is no snapshot, and sealed it.
        """
        self.file.seek(0)
        for size in self.sizes:
            inflater = zlib.decompressobj()
            try:
                data = inflater.decompress(self.file.read(size), PART_BYTES + LIMITS.ref_bytes)
            except zlib.error as error:
                raise CorruptError(SNAPSHOTS, f"a part cannot be unpacked: {error}", hint=_HINT) from error
            for line in data.split(b"\n")[:-1]:
                key, _, stored = line.partition(b" ")
                yield RefEntry.parse(key.decode("ascii", "replace"), stored)


_HINT = f"remove what is below {SNAPSHOTS}; the next collection of garbage writes another snapshot"


def latest_snapshot(store: Store) -> Snapshot | None:
    """The latest snapshot of a store; None when there is none, or when it is damaged.

    Raises:
        UnavailableError, NotAllowedError: the store does not answer, or refuses.
    """
    for number in sorted(_records(store), reverse=True):
        file = TemporaryFile()  # noqa: SIM115 - the snapshot closes it
        try:
            record = _record(store, number)
            sizes = tuple(_copied(store, record, file))
            unread = tuple(ref_of(f"{REFS}{path}/") for path in record["unread"])
            return Snapshot(int(record["start"]), unread, file, sizes)
        except (DataError, NotFoundError, KeyError, TypeError, ValueError):
            # Damaged, or deleted meanwhile: the one before it may serve, or the log.
            file.close()
        except BaseException:
            file.close()
            raise
    return None


def heads_of(
    snapshot: Snapshot,
    changes: Mapping[Ref, int],
    latest: Callable[[Ref], RefEntry | None],
    damaged: list[CorruptError],
) -> Iterator[RefEntry]:
    """The latest entry of every tag, deleted ones included, in any order.

    Args:
        snapshot: where the tags that did not move are read; it is closed.
        changes: number of the highest entry that was noted of each tag since its start.
        latest: looks up the latest entry of a tag; None when there is none.
        damaged: errors of tags that had to be looked up and cannot be read are appended to it.
    """
    left = dict(changes)
    again = list(snapshot.unread)
    with snapshot:
        for entry in snapshot.entries():
            if left.pop(entry.ref, 0) > entry.n:
                again.append(entry.ref)
            else:
                yield entry

    def look(ref: Ref) -> RefEntry | DataError | None:
        try:
            return latest(ref)
        except DataError as error:
            return error

    with ThreadPoolExecutor(_READERS) as pool:
        for result in pool.map(look, dict.fromkeys([*again, *left])):
            if isinstance(result, DataError):
                key, _, fault = result.message.partition(": ")
                damaged.append(CorruptError(key, fault, hint=result.hint))
            elif result is not None:
                yield result


def _copied(store: Store, record: Mapping[str, Any], file: IO[bytes]) -> Iterator[int]:
    for number, digest in enumerate(record["parts"]):
        key = _part(record["folder"], number)
        data = store.get(key, max_bytes=2 * PART_BYTES)
        if Digest.of(data) != digest:
            raise CorruptError(key, "its bytes do not match its snapshot")
        file.write(data)
        yield len(data)


def _records(store: Store) -> list[int]:
    matches = (_RECORD.fullmatch(info.key) for info in store.list(SNAPSHOTS))
    return [int(match[1]) for match in matches if match]


def _record(store: Store, number: int) -> dict[str, Any]:
    data = store.get(_key(number), max_bytes=_RECORD_BYTES)
    return parse_sealed(data, _key(number), schema=_SCHEMA, max_bytes=_RECORD_BYTES)


def _key(number: int) -> str:
    return f"{SNAPSHOTS}{number:020d}.json"


def _part(folder: str, number: int) -> str:
    return f"{SNAPSHOTS}{folder}/{number:06d}.z"
