"""What an audit of a whole registry knows, on disk: memory does not grow, and one that is killed goes on later.

A SQLite file of the audit, which is deleted when it has ended::

    tags         one row for each: what its listing showed, and what its latest entry names
    artifacts    one row for each that is stored or named: what its listing showed, and what was verified of it

A row that has a time was found to be sound then. The next audit takes it over if the same is listed, which names sizes
and times of all objects, and it is not older than ``LIFE``; everything else is looked at again. Of two audits at the
same time the second has a file without a name, and cannot be continued; nor can one whose file cannot be written.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from maskreg.closing import Closing
from maskreg.digest import Digest
from maskreg.ref import Ref
from maskreg.store.backrefs import Named
from maskreg.store.entry import ref_of

LIFE = 86_400.0
"""Seconds for which what was verified need not be verified again by an audit that goes on."""

_BATCH = 1_000
_COMMIT_S = 5.0
_PAGES_KIB = 16 << 10
_TABLES = """
    CREATE TABLE IF NOT EXISTS tags (
        path TEXT PRIMARY KEY, listing BLOB, entries INTEGER, n INTEGER, digest TEXT, at REAL, run INTEGER
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS artifacts (
        digest TEXT PRIMARY KEY, listing BLOB, size INTEGER, objects INTEGER, bytes INTEGER, at REAL, run INTEGER
    ) WITHOUT ROWID;
    DROP INDEX IF EXISTS by_digest;
"""


class Listed(NamedTuple):
    """An artifact that is stored or named.

    Attributes:
        digest: the artifact.
        size: bytes of its objects, as listed.
        objects: how many objects were hashed; None when it is still to be verified.
        bytes: their size.
    """

    digest: Digest
    size: int
    objects: int | None
    bytes: int


class Marks(Closing):
    """The file of one audit; one thread uses it at a time.

    Attributes:
        resumed: tags and artifacts that an audit before this one had verified.
    """

    def __init__(self, path: Path | None) -> None:
        """Open the file.

        Args:
            path: where it is, or is to be; None for one without a name.
        """
        self.resumed = 0
        self._file, self._path = _opened(path)
        self._is_over = False
        self._run = 1 + self._one(
            "SELECT coalesce(max(run), 0) FROM (SELECT run FROM tags UNION SELECT run FROM artifacts)"
        )
        self._oldest = time.time() - LIFE
        self._kept = time.monotonic()

    def close(self) -> None:
        """Keep what was verified, for an audit that goes on; after :meth:`finish`, delete it."""
        if self._is_over:
            self._file.close()
            for suffix in ("", "-wal", "-shm") if self._path is not None else ():
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)
            if self._path is not None:
                # Others may have theirs in the folder.
                with suppress(OSError):
                    self._path.parent.rmdir()
            return
        self._keep()
        self._file.close()

    def finish(self) -> None:
        """The audit has ended: nothing is left to go on with."""
        self._is_over = True

    def _keep(self) -> None:
        self._file.commit()
        self._kept = time.monotonic()

    # Tags

    def has_tag(self, path: str, listing: bytes) -> bool:
        """Whether a tag was verified, and is listed as it was then; it counts for this audit then."""
        changed = self._do(
            "UPDATE tags SET run = ? WHERE path = ? AND listing = ? AND at > ?", self._run, path, listing, self._oldest
        )
        self.resumed += changed
        return bool(changed)

    def put_tag(self, path: str, listing: bytes, entries: int, named: Named | None, *, is_sound: bool) -> None:
        """Write what was found of a tag.

        Args:
            path: its folder.
            listing: hash of what is listed there.
            entries: how many entries it has.
            named: what it names; None when it was removed or cannot be read.
            is_sound: whether nothing is wrong with it.
        """
        n, digest = (named.n, named.digest) if named is not None else (None, None)
        values = (path, listing, entries, n, digest, time.time() if is_sound else None, self._run)
        self._do("INSERT OR REPLACE INTO tags VALUES (?, ?, ?, ?, ?, ?, ?)", *values)

    def end_tags(self) -> tuple[int, int]:
        """Forget what is not listed any more.

        Returns:
            How many tags there are, and how many entries they have.
        """
        self._do("DELETE FROM tags WHERE run <> ?", self._run)
        self._do("CREATE INDEX by_digest ON tags (digest) WHERE digest IS NOT NULL")
        row = self._file.execute("SELECT count(*), coalesce(sum(entries), 0) FROM tags").fetchone()
        return int(row[0]), int(row[1])

    def names(self, digest: Digest) -> tuple[str, ...]:
        """References that name an artifact, in order."""
        rows = self._file.execute("SELECT path FROM tags WHERE digest = ?", (digest,))
        return tuple(sorted(str(_ref(row[0])) for row in rows))

    def named(self) -> Iterator[Named]:
        """What tags name, in the order of the digests."""
        for (digest,) in self._column("SELECT DISTINCT digest FROM tags WHERE digest > ? ORDER BY digest"):
            for path, n in self._file.execute("SELECT path, n FROM tags WHERE digest = ?", (digest,)).fetchall():
                yield Named(Digest(digest), _ref(path), n)

    # Artifacts

    def list_artifact(self, digest: Digest, listing: bytes, size: int) -> None:
        """Write what is listed of an artifact; what was verified of it stays if that is the same."""
        self._do(
            "INSERT INTO artifacts VALUES (?, ?, ?, NULL, 0, NULL, ?) ON CONFLICT (digest) DO UPDATE SET"
            " at = CASE WHEN listing = excluded.listing AND at > ? THEN at END,"
            " listing = excluded.listing, size = excluded.size, run = excluded.run",
            *(digest, listing, size, self._run, self._oldest),
        )

    def end_listing(self) -> int:
        """Add what is named and not stored, and forget what is neither; how many artifacts there are."""
        self._do(
            "INSERT INTO artifacts SELECT DISTINCT digest, x'', 0, NULL, 0, NULL, ? FROM tags WHERE digest IS NOT NULL"
            " ON CONFLICT (digest) DO UPDATE SET listing = x'', size = 0, at = NULL, run = excluded.run"
            " WHERE run <> excluded.run",
            self._run,
        )
        self._do("DELETE FROM artifacts WHERE run <> ?", self._run)
        self.resumed += self._one("SELECT count(*) FROM artifacts WHERE at IS NOT NULL")
        return self._one("SELECT count(*) FROM artifacts")

    def artifacts(self) -> Iterator[Listed]:
        """All artifacts, in the order of their digests; they may be marked meanwhile."""
        columns = "digest, size, CASE WHEN at IS NULL THEN NULL ELSE objects END, bytes"
        for digest, *rest in self._column(f"SELECT {columns} FROM artifacts WHERE digest > ? ORDER BY digest"):
            yield Listed(Digest(digest), *rest)

    def put_artifact(self, digest: Digest, objects: int, size: int) -> None:
        """Write that an artifact was verified and is sound."""
        self._do(
            "UPDATE artifacts SET objects = ?, bytes = ?, at = ? WHERE digest = ?", objects, size, time.time(), digest
        )

    def _column(self, query: str) -> Iterator[tuple[Any, ...]]:
        # In pages by the first column, so that others may write between them.
        last = ""
        while page := self._file.execute(f"{query} LIMIT {_BATCH}", (last,)).fetchall():
            yield from page
            last = page[-1][0]

    def _one(self, query: str) -> int:
        return int(self._file.execute(query).fetchone()[0])

    def _do(self, statement: str, *values: object) -> int:
        changed = self._file.execute(statement, values).rowcount
        if time.monotonic() - self._kept > _COMMIT_S:
            self._keep()
        return changed


def _opened(path: Path | None) -> tuple[sqlite3.Connection, Path | None]:
    # Of a home that may only be read, and beside another audit, the file has no name.
    if path is not None:
        for _ in range(2):
            try:
                path.parent.mkdir(exist_ok=True)
                return _with_tables(path), path
            except (OSError, sqlite3.OperationalError):
                break
            except sqlite3.DatabaseError:
                path.unlink()  # damaged, and no more than a help
    return _with_tables(None), None


def _with_tables(path: Path | None) -> sqlite3.Connection:
    file = sqlite3.connect("" if path is None else path, timeout=0, check_same_thread=False)
    try:
        file.execute(f"PRAGMA cache_size = -{_PAGES_KIB}")
        file.execute("PRAGMA locking_mode = EXCLUSIVE")
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        file.executescript(_TABLES)
    except BaseException:
        file.close()
        raise
    return file


def _ref(path: str) -> Ref:
    return ref_of(f"{path}/")
