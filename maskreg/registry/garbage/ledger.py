"""What a collection knows of names and artifacts, on disk: its memory does not grow with the registry.

It is a temporary database of SQLite, which has no name and is gone when it is closed. Everything is written in the
order of its key, and an index is made when somebody first looks by it: in any other order each row of a large registry
would bring another page from disk::

    tags       one row for each: what the last listing showed of it, and what its latest entry names
    left       keys of entries that were followed by another within the grace period
    lost       artifacts that a tag left within the grace period
    given_up   artifacts that some readable tag named at any time; only these may go while tags are damaged
    read       artifacts whose manifest was read
    links      which artifact stands on which
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from maskreg.closing import Closing
from maskreg.digest import Digest
from maskreg.store.backrefs import tag_hash
from maskreg.store.entry import ref_of

_PAGES_KIB = 16 << 10
_BATCH = 1_000
_BY_HASH = "CREATE INDEX IF NOT EXISTS by_hash ON tags (hash)"
_BY_DIGEST = "CREATE INDEX IF NOT EXISTS by_digest ON tags (digest) WHERE digest IS NOT NULL"
_TABLES = """
    CREATE TABLE tags (
        path TEXT PRIMARY KEY, numbers TEXT, latest INTEGER, entries INTEGER, stamp TEXT, stray TEXT,
        sound INTEGER, hash TEXT, read TEXT, digest TEXT
    ) WITHOUT ROWID;
    CREATE TABLE left (key TEXT PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE lost (digest TEXT PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE given_up (digest TEXT PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE read (digest TEXT PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE links (below TEXT, digest TEXT, PRIMARY KEY (below, digest)) WITHOUT ROWID;
"""


class Tag(NamedTuple):
    """What a listing showed of one tag.

    Attributes:
        path: its folder.
        numbers: of its entries, as :func:`ranges` writes them.
        latest: the highest of them.
        entries: how many there are.
        stamp: size and time of the latest entry.
        stray: a key in the folder that no entry has; empty when there is none.
        sound: whether no entry is missing, and there is no stray.
    """

    path: str
    numbers: str
    latest: int
    entries: int
    stamp: str
    stray: str
    sound: bool


@dataclass(frozen=True)
class Totals:
    """How many tags there are, and how many entries they have."""

    tags: int
    entries: int


class Ledger(Closing):
    """The database of one collection; one thread uses it at a time."""

    def __init__(self) -> None:
        # An empty name is a private file that SQLite deletes as soon as it has opened it.
        self._file = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._file.execute(f"PRAGMA cache_size = -{_PAGES_KIB}")
        for statement in ("journal_mode = OFF", "synchronous = OFF", "temp_store = FILE"):
            self._file.execute(f"PRAGMA {statement}")
        self._file.executescript(_TABLES)
        # Never ended: nobody else reads it, and a transaction for each row would write every page many times.
        self._file.execute("BEGIN")

    def close(self) -> None:
        """Delete it."""
        self._file.close()

    # Names

    def put(self, tag: Tag) -> None:
        """Write what a listing showed of a tag; what was read of its latest entry stays."""
        folder = f"{tag.path}/"
        self._file.execute(
            "INSERT INTO tags VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL) ON CONFLICT (path) DO UPDATE SET"
            " numbers = excluded.numbers, latest = excluded.latest, entries = excluded.entries,"
            " stamp = excluded.stamp, stray = excluded.stray, sound = excluded.sound",
            (folder, *tag[1:], tag_hash(ref_of(folder))),
        )

    def by_hash(self, tag_hash: str) -> Tag | None:
        """The tag of a hash, as back references have it; None when no listing showed it."""
        self._file.execute(_BY_HASH)
        return next(self._tags("hash = ?", tag_hash), None)

    def unsound(self) -> list[Tag]:
        """Tags whose folder lacks an entry, or holds something else."""
        return list(self._tags("NOT sound ORDER BY path"))

    def all_tags(self) -> Iterator[Tag]:
        """Every tag, in the order of their keys; others may be written meanwhile."""
        return (tag for batch in self._batches("") for tag in batch)

    def unread(self) -> Iterator[list[Tag]]:
        """Sound tags whose latest entry was not read yet, or is another one now; some at a time."""
        return self._batches("AND sound AND read IS NOT stamp")

    def names(self, path: str, digest: Digest | None, *, is_read: bool = True) -> None:
        """Write what the latest entry of a tag names; None when it removed the name, or cannot be read."""
        read = "stamp" if is_read else "NULL"
        self._file.execute(f"UPDATE tags SET read = {read}, digest = ? WHERE path = ?", (digest, f"{path}/"))

    def totals(self) -> Totals:
        """How much the last listing showed."""
        return Totals(*self._file.execute("SELECT count(*), coalesce(sum(entries), 0) FROM tags").fetchone())

    def leave(self, keys: Iterable[str]) -> None:
        """Add keys of entries that were followed by another a short while ago."""
        self._file.executemany("INSERT OR IGNORE INTO left VALUES (?)", ((key,) for key in keys))

    def left(self) -> Iterator[str]:
        """These keys, in order."""
        return (row[0] for row in self._file.execute("SELECT key FROM left ORDER BY key"))

    # Artifacts

    def add(self, table: str, digests: Iterable[Digest]) -> None:
        """Add artifacts to ``lost``, ``given_up`` or ``read``."""
        self._file.executemany(f"INSERT OR IGNORE INTO {table} VALUES (?)", ((digest,) for digest in digests))

    def has(self, table: str, digest: Digest) -> bool:
        """Whether an artifact is in ``lost``, ``given_up`` or ``read``."""
        return self._any(f"SELECT 1 FROM {table} WHERE digest = ?", digest)

    def is_named(self, digest: Digest) -> bool:
        """Whether the latest entry of some tag names an artifact."""
        self._file.execute(_BY_DIGEST)
        return self._any("SELECT 1 FROM tags WHERE digest = ?", digest)

    def link(self, digest: Digest, below: Iterable[Digest]) -> None:
        """Write what an artifact stands on."""
        self._file.executemany("INSERT OR IGNORE INTO links VALUES (?, ?)", ((each, digest) for each in below))

    def carries(self, digest: Digest) -> bool:
        """Whether an artifact that has a name, or one that such an artifact stands on, stands on this one."""
        return self._any("SELECT 1 FROM links WHERE below = ?", digest)

    def unread_artifacts(self) -> Iterator[list[Digest]]:
        """Artifacts with a name, or below one, whose manifest was not read; some at a time, until all were."""
        self._file.execute(_BY_DIGEST)
        for source in ("SELECT DISTINCT digest FROM tags WHERE digest > ?", "SELECT digest FROM lost WHERE digest > ?"):
            last = ""
            while batch := self._digests(f"{source} ORDER BY digest LIMIT {_BATCH}", last):
                if new := [digest for digest in batch if not self.has("read", digest)]:
                    yield new
                last = batch[-1]
        below = f"SELECT DISTINCT below FROM links WHERE below NOT IN (SELECT digest FROM read) LIMIT {_BATCH}"
        while batch := self._digests(below):
            yield batch

    def _digests(self, query: str, *values: str) -> list[Digest]:
        return [Digest(row[0]) for row in self._file.execute(query, values)]

    def _batches(self, where: str) -> Iterator[list[Tag]]:
        last = ""
        while batch := list(self._tags(f"path > ? {where} ORDER BY path LIMIT {_BATCH}", last)):
            yield batch
            last = f"{batch[-1].path}/"

    def _tags(self, where: str, *values: object) -> Iterator[Tag]:
        # Folders are kept with the slash at their end, which puts them in the order of their keys.
        columns = ", ".join(Tag._fields)
        for row in self._file.execute(f"SELECT {columns} FROM tags WHERE {where}", values):
            yield Tag._make((row[0][:-1], *row[1:-1], bool(row[-1])))

    def _any(self, query: str, value: str) -> bool:
        return self._file.execute(query, (value,)).fetchone() is not None


def ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as text: ``1-5,7``."""
    spans: list[list[int]] = []
    for n in numbers:
        if spans and spans[-1][1] == n - 1:
            spans[-1][1] = n
        else:
            spans.append([n, n])
    return ",".join(f"{first}-{last}" if first < last else f"{first}" for first, last in spans)


def in_ranges(text: str) -> list[int]:
    """The numbers of such a text."""
    spans = (span.partition("-") for span in text.split(",") if span)
    return [n for first, _, last in spans for n in range(int(first), int(last or first) + 1)]
