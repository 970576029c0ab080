"""The catalog: an index over a store, and the few things that only SQL holds."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Engine, delete, select, text, update
from sqlalchemy.dialects import postgresql, sqlite

from maskreg.catalog.address import Address, parse_address
from maskreg.catalog.engine import WRITE, make_engine
from maskreg.catalog.faults import readable_rows, translated
from maskreg.catalog.filesystem import writable
from maskreg.catalog.models import ArtifactRow, EventRow, FilledRow, MeasurementRow, RefRow, SeenSourceRow
from maskreg.catalog.query import Found, Query, statement
from maskreg.catalog.records import RLVR_OVERLAP, Event, Indexed, Measurement
from maskreg.catalog.rows import Row, artifact_row, batches, record_row, ref_row
from maskreg.catalog.schema import HEAD, bring_up, installed, refuse_behind, refuse_newer
from maskreg.digest import Digest

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest
    from maskreg.store.reflog import RefEntry


class Catalog:
    """An open catalog; safe to use from many threads (in memory: from one).

    Every method raises ``TryAgainError`` when somebody else holds a lock for too long, ``CorruptError`` when
    the SQLite file is damaged, ``NotAllowedError`` when it may not be written, and ``UnavailableError`` when
    the server does not answer.

    Attributes:
        safe_refs: whether ``lock`` makes everybody take turns who uses this catalog's registry, so that a store
            without conditional writes may hold its refs.
    """

    def __init__(self, address: Address, engine: Engine) -> None:
        self._address = address
        self._engine = engine
        self._write_engine = engine.execution_options(**{WRITE: True})
        self._insert = sqlite.insert if address.sqlite else postgresql.insert
        self._held = threading.local()
        self.safe_refs = not address.sqlite
        # Also when nobody calls close: an open connection must not wait for the garbage collector.
        self._close = weakref.finalize(self, engine.dispose)

    @classmethod
    def open(cls, url: str) -> Catalog:
        """Open a catalog; a SQLite file is created, and migrated to this code's schema, without a word.

        Args:
            url: ``sqlite:///PATH``, ``sqlite://`` (in memory) or ``postgresql+psycopg://USER@HOST/DATABASE``.

        Raises:
            ConfigError: another kind of URL, a password in it, a schema that is newer than this code, or a
                PostgreSQL (or a SQLite file that cannot be written here) whose schema is behind.
            CorruptError: the SQLite file is damaged, or no database.
            CannotCreateError: the SQLite file cannot be made.
            NotAllowedError: the server refused the credentials.
            UnavailableError: the server does not answer.
        """
        address = parse_address(url)
        catalog = cls(address, make_engine(address))
        try:
            catalog._ensure_schema()
        except BaseException:
            catalog.close()
            raise
        return catalog

    def _ensure_schema(self) -> None:
        with self._read() as connection:
            found = installed(connection)
        refuse_newer(self._address, found)
        if found == HEAD:
            return
        if not self._address.sqlite or (self._address.path and not writable(self._address.path)):
            refuse_behind(self._address, found)
        bring_up(self._address, self._engine)

    def close(self) -> None:
        """Close every connection."""
        self._close()

    def __enter__(self) -> Catalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The index

    def put_artifact(self, digest: Digest, manifest: Manifest) -> None:
        """Index an artifact; doing it again changes nothing."""
        with self._write() as connection:
            self._put_artifacts(connection, [artifact_row(digest, manifest)])
            _refresh_overlap(connection, digest)

    def drop_artifact(self, digest: Digest) -> None:
        """Forget an artifact; what was measured on it stays."""
        with self._write() as connection:
            connection.execute(delete(ArtifactRow).where(ArtifactRow.digest == digest))

    def put_ref(self, entry: RefEntry) -> None:
        """Index an entry of a ref log; an older one than is known changes nothing."""
        with self._write() as connection:
            self._put_refs(connection, [ref_row(entry)])

    def get(self, digest: Digest) -> Indexed | None:
        """What the index knows of an artifact; None when it does not know it."""
        names = [field.name for field in fields(Indexed)]
        columns = [getattr(ArtifactRow, name) for name in names]
        with self._read() as connection:
            row = connection.execute(select(*columns).where(ArtifactRow.digest == digest)).one_or_none()
            return None if row is None else Indexed(Digest(row[0]), *row[1:])

    def search(self, query: Query = Query()) -> list[Found]:  # noqa: B008 (frozen)
        """Live refs that match, in the query's order. A ref whose artifact is not indexed is not found.

        Raises:
            UsageError: the query makes no sense.
        """
        question = statement(query)
        with self._read() as connection:
            rows = connection.execute(question).mappings()
            return [Found(**{**row, "digest": Digest(row["digest"])}) for row in rows]

    def filled_from(self) -> str | None:
        """Uuid of the registry that the index was last rebuilt from; None when it never was."""
        with self._read() as connection:
            return connection.execute(select(FilledRow.source)).scalar()

    def rebuild(
        self, entries: Iterable[RefEntry], manifests: Iterable[tuple[Digest, Manifest]], *, registry: str = ""
    ) -> tuple[int, int]:
        """Replace the index by what a store holds; measurements, events and seen sources stay.

        Both are read inside the one transaction: whoever indexes something meanwhile waits, and is not lost.
        When reading fails, the old index stays.

        Args:
            entries: the newest entry of every ref, deleted ones included.
            manifests: of every artifact.
            registry: uuid of the registry they come from, for ``filled_from``.

        Returns:
            How many refs, deleted ones too, and how many artifacts were indexed.
        """
        count = [0, 0]
        with self._write() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("LOCK TABLE artifacts, refs IN SHARE ROW EXCLUSIVE MODE"))
            for table in (RefRow, ArtifactRow, FilledRow):
                connection.execute(delete(table))
            for refs in batches(ref_row(entry) for entry in entries):
                self._put_refs(connection, refs)
                count[0] += len(refs)
            for artifacts in batches(artifact_row(*pair) for pair in manifests):
                self._put_artifacts(connection, artifacts)
                count[1] += len(artifacts)
            _refresh_overlap(connection)
            connection.execute(self._insert(FilledRow).values(source=registry, at=datetime.now(UTC)))
        return count[0], count[1]

    # What only SQL holds

    def record(self, measurement: Measurement) -> None:
        """Keep a measurement. ``rlvr_overlap`` of a whole mask also becomes a column to search by."""
        with self._write() as connection:
            # Two at once take turns on the artifact's row: the one that gets the higher number also writes last.
            locked = select(ArtifactRow.digest).where(ArtifactRow.digest == measurement.digest)
            connection.execute(locked.with_for_update()).all()
            connection.execute(self._insert(MeasurementRow).values(record_row(measurement)))
            if measurement.metric == RLVR_OVERLAP:
                _refresh_overlap(connection, measurement.digest)

    def measurements(self, digest: Digest) -> list[Measurement]:
        """Everything measured on an artifact, in the order of recording."""
        columns = [getattr(MeasurementRow, field.name) for field in fields(Measurement)]
        wanted = select(*columns).where(MeasurementRow.digest == digest).order_by(MeasurementRow.id)
        with self._read() as connection:
            return [Measurement(Digest(row[0]), *row[1:]) for row in connection.execute(wanted)]

    def log(self, event: Event) -> None:
        """Add a line to the audit log."""
        with self._write() as connection:
            connection.execute(self._insert(EventRow).values(record_row(event)))

    def events(
        self, *, subject: str = "", action: str = "", by: str = "", since: datetime | None = None, limit: int = 100
    ) -> list[Event]:
        """The newest lines of the audit log, newest first; every condition that is given must hold.

        Args:
            subject: to what it was done.
            action: what was done.
            by: who did it.
            since: not before (aware).
            limit: at most so many.
        """
        wanted = select(*(getattr(EventRow, field.name) for field in fields(Event)))
        for column, value in ((EventRow.subject, subject), (EventRow.action, action), (EventRow.by, by)):
            wanted = wanted.where(column == value) if value else wanted
        if since is not None:
            wanted = wanted.where(EventRow.at >= since)
        with self._read() as connection:
            rows = connection.execute(wanted.order_by(EventRow.id.desc()).limit(limit))
            return [Event(*row) for row in rows]

    def saw_source(self, root: str, path: str) -> None:
        """Remember that the checkpoint of identity ``root`` was at ``path`` just now."""
        row = self._insert(SeenSourceRow).values(root=root, path=path, at=datetime.now(UTC))
        with self._write() as connection:
            connection.execute(row.on_conflict_do_update(index_elements=["root", "path"], set_={"at": row.excluded.at}))

    def seen_sources(self, root: str) -> list[str]:
        """Paths where the checkpoint of identity ``root`` was seen, the latest first."""
        wanted = select(SeenSourceRow.path).where(SeenSourceRow.root == root)
        with self._read() as connection:
            newest = wanted.order_by(SeenSourceRow.at.desc(), SeenSourceRow.id.desc())
            return list(connection.execute(newest).scalars())

    # Transactions

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Keep everybody else out who locks the same name in this catalog, until the block ends.

        PostgreSQL: an advisory lock on a connection of its own. SQLite: the one write transaction, which what
        this thread writes to the catalog inside the block becomes part of.

        Raises:
            TryAgainError: somebody else held it for too long.
        """
        with translated(self._address), self._write_engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                # Bound to the transaction, not the session: it ends with it, also behind a pooling proxy.
                key = int.from_bytes(hashlib.sha256(f"maskreg:{name}".encode()).digest()[:8], signed=True)
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
                yield
                return
            self._held.connection = connection
            try:
                yield
            finally:
                self._held.connection = None

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        held: Connection | None = getattr(self._held, "connection", None)
        with translated(self._address):
            if held is not None:
                with held.begin_nested():
                    yield held
                return
            with self._write_engine.begin() as connection:
                yield connection

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        held: Connection | None = getattr(self._held, "connection", None)
        with translated(self._address), readable_rows(self._address):
            if held is not None:
                yield held
                return
            with self._engine.connect() as connection:
                yield connection

    def _put_artifacts(self, connection: Connection, rows: list[Row]) -> None:
        row = self._insert(ArtifactRow)
        connection.execute(row.on_conflict_do_update(index_elements=["digest"], set_=_replaced(row, rows[0])), rows)

    def _put_refs(self, connection: Connection, rows: list[Row]) -> None:
        row = self._insert(RefRow)
        key = ["project", "name", "tag"]
        # Entries arrive in any order; the log's number says which is newer.
        newer = row.excluded.n >= RefRow.n
        upsert = row.on_conflict_do_update(index_elements=key, set_=_replaced(row, rows[0]), where=newer)
        connection.execute(upsert, rows)


def _replaced(insert: sqlite.Insert | postgresql.Insert, row: Row) -> dict[str, ColumnElement[Any]]:
    # Only what the row brings: other columns of an existing one stay.
    return {name: insert.excluded[name] for name in row}


def _refresh_overlap(connection: Connection, digest: Digest | None = None) -> None:
    # The latest recording counts, also one that is older than the row (an artifact may be indexed again).
    latest = (
        select(MeasurementRow.value, MeasurementRow.against)
        .where(MeasurementRow.digest == ArtifactRow.digest)
        .where(MeasurementRow.metric == RLVR_OVERLAP, MeasurementRow.by_group == "")
        .order_by(MeasurementRow.id.desc())
        .limit(1)
        .correlate(ArtifactRow)
    )
    change = update(ArtifactRow).values(
        rlvr_overlap=latest.with_only_columns(MeasurementRow.value).scalar_subquery(),
        rlvr_against=latest.with_only_columns(MeasurementRow.against).scalar_subquery(),
    )
    connection.execute(change if digest is None else change.where(ArtifactRow.digest == digest))
