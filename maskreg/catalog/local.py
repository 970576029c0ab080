"""A catalog in a SQLite file: what everyday commands ask and write needs no SQLAlchemy.

Importing SQLAlchemy takes longer than everything else that ``maskreg list`` does. So the standard library makes an
empty file's tables, reads rows and checks their seals. Whatever is not plain sailing is left to the catalog behind,
which is in SQLAlchemy; it then finds out what is wrong, and says so or mends it::

    open                         the schema is this version's, or the file is new?     else the catalog behind opens it
    search, publish              done, unless an error or a wrong seal is in the way   else the catalog behind does it
    a lock that is held          is waited for once, and reported
    anything else                                                                      the catalog behind does it

Once the catalog behind is open it does everything.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from maskreg.catalog.query import Answer, Query, SearchResult
from maskreg.catalog.records import Event, Indexed, Measurement
from maskreg.catalog.tables.columns import HEAD, VERSION_TABLE, clean
from maskreg.catalog.tables.connecting import is_busy, make_folder_of, still_written
from maskreg.catalog.tables.file import add, checked_rows, put, recorded_overlap, rows, sealed_rows, transaction
from maskreg.catalog.tables.matching import answer_from, measured
from maskreg.catalog.tables.rows import artifact_row, indexed_of, measurement_of, record_row, ref_row, unread_in
from maskreg.closing import Closing
from maskreg.digest import Digest

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest
    from maskreg.catalog.sql import SqlCatalog
    from maskreg.ref import Ref
    from maskreg.store.reflog import RefEntry

T = TypeVar("T")

# What SQLite raises, and what a row raises that is not as it was written.
_DOUBTS = (sqlite3.Error, KeyError, OverflowError, TypeError, ValueError)


class LocalCatalog(Closing):
    """A :class:`~maskreg.catalog.base.Catalog` in a SQLite file.

    Attributes:
        safe_refs: False: its lock holds on this machine only.
    """

    safe_refs = False
    keeps_up = False

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

    # Done in the file

    def number(self, ref: Ref) -> int:
        """Number of the indexed entry of a tag; 0 when there is none."""

        def ask(file: sqlite3.Connection) -> int:
            entries = sealed_rows(file, "refs", project=ref.project, name=ref.name, tag=ref.tag)
            return int(entries[0]["n"]) if entries else 0

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
            unread = unread_in(rows(file, "filled"))
            return answer_from(checked_rows(file, "refs"), checked_rows(file, "artifacts"), query, unread)

        return self._try(ask, lambda behind: behind.answer(query))

    def filled_from(self) -> str | None:
        """Uuid of the registry that the index was last rebuilt from; None when it never was."""

        def ask(file: sqlite3.Connection) -> str | None:
            return next((row["source"] for row in rows(file, "filled")), None)

        return self._try(ask, lambda behind: behind.filled_from())

    def measurements(self, digest: Digest, *, metrics: Collection[str] = (), against: str = "") -> list[Measurement]:
        """Measurements of an artifact, in the order of recording."""

        def ask(file: sqlite3.Connection) -> list[Measurement]:
            own = measured(checked_rows(file, "measurements"), digest, metrics, against)
            return [measurement_of(row) for row in sorted(own, key=itemgetter("id"))]

        return self._try(ask, lambda behind: behind.measurements(digest, metrics=metrics, against=against))

    def seen_sources(self, root: str) -> list[str]:
        """Paths where the checkpoint of identity ``root`` was seen, the latest first."""

        def ask(file: sqlite3.Connection) -> list[str]:
            seen = rows(file, "seen_sources", "WHERE root = ?", (clean(root),))
            return [row["path"] for row in sorted(seen, key=itemgetter("at", "id"), reverse=True)]

        return self._try(ask, lambda behind: behind.seen_sources(root))

    def saw_source(self, root: str, path: str) -> None:
        """Remember that the checkpoint of identity ``root`` is at ``path`` now."""
        row = {"root": root, "path": path, "at": datetime.now(UTC)}

        def write(file: sqlite3.Connection) -> None:
            add(file, "seen_sources", row, "ON CONFLICT (root, path) DO UPDATE SET at = excluded.at")

        self._try(write, lambda behind: behind.saw_source(root, path), writes=True)

    def put_artifact(self, digest: Digest, manifest: Manifest) -> None:
        """Index an artifact; indexing it again changes nothing."""

        def write(file: sqlite3.Connection) -> None:
            put(file, "artifacts", artifact_row(digest, manifest, recorded_overlap(file, digest)), "digest")

        self._try(write, lambda behind: behind.put_artifact(digest, manifest), writes=True)

    def put_ref(self, entry: RefEntry) -> None:
        """Index an entry of a ref log; one that is older than the indexed entry changes nothing."""

        def write(file: sqlite3.Connection) -> None:
            # Only the catalog behind takes the entry off the list of those that could not be read.
            if unread_in(rows(file, "filled")):
                raise ValueError("entries that could not be read")
            put(file, "refs", ref_row(entry), "project", "name", "tag", newer="n")

        self._try(write, lambda behind: behind.put_ref(entry), writes=True)

    def get(self, digest: Digest) -> Indexed | None:
        """The indexed facts of an artifact; None when it is not indexed."""

        def ask(file: sqlite3.Connection) -> Indexed | None:
            artifacts = sealed_rows(file, "artifacts", digest=digest)
            return indexed_of(artifacts[0]) if artifacts else None

        return self._try(ask, lambda behind: behind.get(digest))

    def log(self, event: Event) -> None:
        """Append an event to the audit log."""
        self._try(lambda file: add(file, "events", record_row(event)), lambda behind: behind.log(event), writes=True)

    # Left to the catalog behind

    def numbers(self, refs: Collection[Ref]) -> dict[Ref, int]:
        """Number of the indexed entry of each of these tags that is indexed."""
        return self._open_behind().numbers(refs)

    def all_numbers(self) -> dict[Ref, int]:
        """Number of the indexed entry of every tag."""
        return self._open_behind().all_numbers()

    def followed(self) -> int | None:
        """Generation of the store's journal up to which the index took in what moved; None when it never did."""
        return self._open_behind().followed()

    def follow(self, generation: int) -> None:
        """Remember that the index took in what moved up to this generation of the store's journal."""
        self._open_behind().follow(generation)

    def drop_artifact(self, digest: Digest) -> None:
        """Remove an artifact from the index; its measurements stay."""
        self._open_behind().drop_artifact(digest)

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
        followed: int | None = None,
    ) -> tuple[int, int, int]:
        """Replace the index; see :meth:`maskreg.catalog.base.Catalog.rebuild`."""
        return self._open_behind().rebuild(entries, manifests, registry=registry, unread=unread, followed=followed)

    def record(self, measurement: Measurement) -> None:
        """Keep a measurement. The latest ``rlvr_overlap`` of a whole mask also becomes searchable."""
        self._open_behind().record(measurement)

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
        """The newest events of the audit log, newest first; all conditions that are given must hold."""
        return self._open_behind().events(
            subject=subject, action=action, by=by, project=project, since=since, before=before, limit=limit
        )

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Hold the exclusive lock ``name`` of this catalog until the block ends.

        Raises:
            TryAgainError: it was held by another for too long.
        """
        return self._open_behind().lock(name)

    # Which of the two

    def _try(
        self, work: Callable[[sqlite3.Connection], T], instead: Callable[[SqlCatalog], T], *, writes: bool = False
    ) -> T:
        if self._behind is None:
            try:
                with transaction(self._path, writes=writes) as file:
                    return work(file)
            except _DOUBTS as error:
                # The catalog behind would wait for as long again.
                if isinstance(error, sqlite3.Error) and is_busy(error):
                    raise still_written(self._path) from error
                # Not swallowed: the same is done again by who can say what is wrong.
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
