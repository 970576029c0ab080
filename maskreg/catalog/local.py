"""A catalog in a SQLite file: what everyday commands ask is answered without SQLAlchemy.

Importing SQLAlchemy takes longer than everything else that ``maskreg list`` does. So the standard library makes an
empty file's tables, reads rows and checks their seals. Whatever is not plain sailing is left to the catalog behind,
which is in SQLAlchemy; it then finds out what is wrong, and says so or mends it::

    open                         the schema is this version's, or the file is new?     else the catalog behind opens it
    a question, a seen source    done, unless an error or a wrong seal is in the way   else the catalog behind does it
    anything else                                                                      the catalog behind does it

Once the catalog behind is open it does everything.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from maskreg.catalog.query import Answer, Query, SearchResult
from maskreg.catalog.records import Event, Indexed, Measurement
from maskreg.catalog.tables.columns import HEAD, TABLES, VERSION_TABLE, Row, clean, parse_row
from maskreg.catalog.tables.connecting import connect, make_folder_of
from maskreg.catalog.tables.matching import answer_from
from maskreg.catalog.tables.rows import measurement_of, unread_in
from maskreg.catalog.tables.seals import Sum, check_seals, check_sum
from maskreg.digest import Digest

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest
    from maskreg.catalog.sql import SqlCatalog
    from maskreg.ref import Ref
    from maskreg.store.reflog import RefEntry

T = TypeVar("T")

# What SQLite raises, and what a row raises that is not as it was written.
_DOUBTS = (sqlite3.Error, KeyError, OverflowError, TypeError, ValueError)

_SEEN = (
    "INSERT INTO seen_sources (root, path, at) VALUES (?, ?, ?) ON CONFLICT (root, path) DO UPDATE SET at = excluded.at"
)


class LocalCatalog:
    """A :class:`~maskreg.catalog.base.Catalog` in a SQLite file.

    Attributes:
        safe_refs: False: its lock holds on this machine only.
    """

    safe_refs = False

    def __init__(self, url: str, path: Path) -> None:
        """Use :meth:`open`."""
        self._url = url
        self._path = path
        self._behind: SqlCatalog | None = None
        self._opening = threading.Lock()

    @classmethod
    def open(cls, url: str) -> LocalCatalog:
        """Open a catalog; the file is created, and migrated to this version's schema.

        Args:
            url: ``sqlite:///PATH``; the path is everything behind the third slash, verbatim.

        Raises:
            ConfigError: the schema is newer than this version, or that of a read-only file is behind.
            CorruptError: the file is damaged, or not a database.
            CannotCreateError: the file cannot be created.
        """
        catalog = cls(url, Path(url.removeprefix("sqlite:///")).absolute())
        make_folder_of(catalog._path)
        catalog._try(catalog._prepare, lambda behind: None)
        return catalog

    def close(self) -> None:
        """Close every connection."""
        if self._behind is not None:
            self._behind.close()

    def __enter__(self) -> LocalCatalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Answered from the file

    def number(self, ref: Ref) -> int:
        """Number of the indexed entry of a tag; 0 when there is none."""

        def ask(file: sqlite3.Connection) -> int:
            rows = _rows(file, "refs", "WHERE project = ? AND name = ? AND tag = ?", ref.project, ref.name, ref.tag)
            check_seals("refs", rows)
            return int(rows[0]["n"]) if rows else 0

        return self._try(ask, lambda behind: behind.number(ref))

    def search(self, query: Query = Query()) -> list[SearchResult]:  # noqa: B008 (frozen)
        """Live refs that match, in the query's order; refs whose artifact is not indexed are left out.

        Raises:
            UsageError: the query is malformed.
        """
        return self.answer(query).results

    def answer(self, query: Query) -> Answer:
        """The matches, and what the index knows it lacks.

        Raises:
            UsageError: the query is malformed.
        """
        query.check()

        def ask(file: sqlite3.Connection) -> Answer:
            unread = unread_in(_rows(file, "filled"))
            return answer_from(_checked(file, "refs"), _checked(file, "artifacts"), query, unread)

        return self._try(ask, lambda behind: behind.answer(query))

    def filled_from(self) -> str | None:
        """Uuid of the registry that the index was last rebuilt from; None when it never was."""

        def ask(file: sqlite3.Connection) -> str | None:
            return next((row["source"] for row in _rows(file, "filled")), None)

        return self._try(ask, lambda behind: behind.filled_from())

    def measurements(self, digest: Digest) -> list[Measurement]:
        """All measurements of an artifact, in the order of recording."""

        def ask(file: sqlite3.Connection) -> list[Measurement]:
            rows = [row for row in _checked(file, "measurements") if row["digest"] == digest]
            return [measurement_of(row) for row in sorted(rows, key=itemgetter("id"))]

        return self._try(ask, lambda behind: behind.measurements(digest))

    def seen_sources(self, root: str) -> list[str]:
        """Paths where the checkpoint of identity ``root`` was seen, the latest first."""

        def ask(file: sqlite3.Connection) -> list[str]:
            rows = _rows(file, "seen_sources", "WHERE root = ?", clean(root))
            return [row["path"] for row in sorted(rows, key=itemgetter("at", "id"), reverse=True)]

        return self._try(ask, lambda behind: behind.seen_sources(root))

    def saw_source(self, root: str, path: str) -> None:
        """Remember that the checkpoint of identity ``root`` is at ``path`` now."""
        now = datetime.now(UTC)

        def write(file: sqlite3.Connection) -> None:
            file.execute("COMMIT")
            file.execute("BEGIN IMMEDIATE")
            file.execute(_SEEN, (clean(root), clean(path), f"{now:%Y-%m-%d %H:%M:%S.%f}"))

        self._try(write, lambda behind: behind.saw_source(root, path))

    # Left to the catalog behind

    def put_artifact(self, digest: Digest, manifest: Manifest) -> None:
        """Index an artifact; indexing it again changes nothing."""
        self._open_behind().put_artifact(digest, manifest)

    def drop_artifact(self, digest: Digest) -> None:
        """Remove an artifact from the index; its measurements stay."""
        self._open_behind().drop_artifact(digest)

    def put_ref(self, entry: RefEntry) -> None:
        """Index an entry of a ref log; one that is older than the indexed entry changes nothing."""
        self._open_behind().put_ref(entry)

    def get(self, digest: Digest) -> Indexed | None:
        """The indexed facts of an artifact; None when it is not indexed."""
        return self._open_behind().get(digest)

    def check(self) -> None:
        """Compare the whole content with what was written; see :meth:`maskreg.catalog.base.Catalog.check`."""
        self._open_behind().check()

    def check_file(self) -> None:
        """Let SQLite look at the structure of its file.

        Raises:
            CorruptError: the file is damaged.
        """
        self._open_behind().check_file()

    def differing(
        self,
        entries: Iterable[RefEntry],
        manifests: Iterable[tuple[Digest, Manifest]],
        *,
        except_refs: Collection[Ref] = (),
        except_artifacts: Collection[Digest] = (),
    ) -> tuple[str, ...]:
        """What the index has otherwise than the store; see :meth:`maskreg.catalog.base.Catalog.differing`."""
        return self._open_behind().differing(
            entries, manifests, except_refs=except_refs, except_artifacts=except_artifacts
        )

    def rebuild(
        self,
        entries: Iterable[RefEntry],
        manifests: Iterable[tuple[Digest, Manifest]],
        *,
        registry: str = "",
        unread: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[int, int, int]:
        """Replace the index; see :meth:`maskreg.catalog.base.Catalog.rebuild`."""
        return self._open_behind().rebuild(entries, manifests, registry=registry, unread=unread)

    def record(self, measurement: Measurement) -> None:
        """Keep a measurement. The latest ``rlvr_overlap`` of a whole mask also becomes searchable."""
        self._open_behind().record(measurement)

    def log(self, event: Event) -> None:
        """Append an event to the audit log."""
        self._open_behind().log(event)

    def events(
        self, *, subject: str = "", action: str = "", by: str = "", since: datetime | None = None, limit: int = 100
    ) -> list[Event]:
        """The newest events of the audit log, newest first; all conditions that are given must hold."""
        return self._open_behind().events(subject=subject, action=action, by=by, since=since, limit=limit)

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Hold the exclusive lock ``name`` of this catalog until the block ends.

        Raises:
            TryAgainError: it was held by another for too long.
        """
        return self._open_behind().lock(name)

    # Which of the two

    def _try(self, work: Callable[[sqlite3.Connection], T], instead: Callable[[SqlCatalog], T]) -> T:
        if self._behind is None:
            try:
                with _transaction(self._path) as file:
                    return work(file)
            except _DOUBTS:
                # Not swallowed: the same is done again by who can say what is wrong.
                pass
        return instead(self._open_behind())

    def _open_behind(self) -> SqlCatalog:
        with self._opening:
            if self._behind is None:
                from maskreg.catalog.sql import SqlCatalog

                self._behind = SqlCatalog.open(self._url)
            return self._behind

    def _prepare(self, file: sqlite3.Connection) -> None:
        if not file.execute("SELECT 1 FROM sqlite_master").fetchone():
            _make_tables(file)
        revisions = [row[0] for row in file.execute(f"SELECT version_num FROM {VERSION_TABLE}")]
        if revisions != [HEAD]:
            raise ValueError(f"schema {revisions}")


def _make_tables(file: sqlite3.Connection) -> None:
    from importlib.resources import files

    script = files("maskreg.catalog.tables").joinpath("schema.sql").read_text()
    file.execute("COMMIT")
    # Its first CREATE fails where another process was quicker.
    file.executescript(script)
    file.execute("BEGIN")


@contextmanager
def _transaction(path: Path) -> Iterator[sqlite3.Connection]:
    # One snapshot; closing the connection of a transaction that was not committed rolls it back.
    file = connect(path)
    try:
        file.row_factory = sqlite3.Row
        file.execute("BEGIN DEFERRED")
        yield file
        file.execute("COMMIT")
    finally:
        file.close()


def _rows(file: sqlite3.Connection, table: str, selection: str = "", *values: str) -> list[Row]:
    names = ", ".join(f'"{name}"' for name in TABLES[table])
    return [parse_row(table, dict(row)) for row in file.execute(f"SELECT {names} FROM {table} {selection}", values)]


def _checked(file: sqlite3.Connection, table: str) -> list[Row]:
    rows = _rows(file, table, "NOT INDEXED")
    check_seals(table, rows)
    stated = [Sum(row["rows"], int(row["sum"], 16)) for row in _rows(file, "sums", 'WHERE "table" = ?', table)]
    check_sum(table, rows, stated[0] if stated else Sum())
    return rows
