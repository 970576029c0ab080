"""A catalog in SQLite or PostgreSQL, through SQLAlchemy."""

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

from maskreg.catalog.query import Query, SearchResult
from maskreg.catalog.records import RLVR_OVERLAP, Event, Indexed, Measurement
from maskreg.catalog.sql.address import Address, parse_address
from maskreg.catalog.sql.engine import WRITE, make_engine
from maskreg.catalog.sql.faults import readable_rows, translated
from maskreg.catalog.sql.filesystem import writable
from maskreg.catalog.sql.models import ArtifactRow, EventRow, FilledRow, MeasurementRow, RefRow, SeenSourceRow
from maskreg.catalog.sql.rows import Row, artifact_row, batches, record_row, ref_row
from maskreg.catalog.sql.schema import HEAD, bring_up, installed, refuse_behind, refuse_newer
from maskreg.catalog.sql.statement import statement
from maskreg.digest import Digest

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest
    from maskreg.store.reflog import RefEntry


class SqlCatalog:
    """A :class:`~maskreg.catalog.base.Catalog` in a database.

    Attributes:
        safe_refs: True for PostgreSQL, whose locks hold for all machines.
    """

    def __init__(self, address: Address, engine: Engine) -> None:
        self._address = address
        self._engine = engine
        self._write_engine = engine.execution_options(**{WRITE: True})
        self._insert = sqlite.insert if address.sqlite else postgresql.insert
        self._held = threading.local()
        self.safe_refs = not address.sqlite
        # Disposes even when close is never called, and before the interpreter shuts down.
        self._close = weakref.finalize(self, engine.dispose)

    @classmethod
    def open(cls, url: str) -> SqlCatalog:
        """Open a catalog; a SQLite file is created, and migrated to this version's schema.

        Args:
            url: ``sqlite:///PATH``, ``sqlite://`` (in memory) or ``postgresql+psycopg://USER@HOST/DATABASE``.

        Raises:
            ConfigError: another kind of URL, a password in it, a schema that is newer than this version, or a
                PostgreSQL database (or a read-only SQLite file) whose schema is behind.
            CorruptError: the SQLite file is damaged, or not a database.
            CannotCreateError: the SQLite file cannot be created.
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
            revision = installed(connection)
        refuse_newer(self._address, revision)
        if revision == HEAD:
            return
        if not self._address.sqlite or (self._address.path and not writable(self._address.path)):
            refuse_behind(self._address, revision)
        bring_up(self._address, self._engine)

    def close(self) -> None:
        """Close every connection."""
        self._close()

    def __enter__(self) -> SqlCatalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The index

    def put_artifact(self, digest: Digest, manifest: Manifest) -> None:
        """Index an artifact; indexing it again changes nothing."""
        with self._write() as connection:
            self._put_artifacts(connection, [artifact_row(digest, manifest)])
            _refresh_overlap(connection, digest)

    def drop_artifact(self, digest: Digest) -> None:
        """Remove an artifact from the index; its measurements stay."""
        with self._write() as connection:
            connection.execute(delete(ArtifactRow).where(ArtifactRow.digest == digest))

    def put_ref(self, entry: RefEntry) -> None:
        """Index an entry of a ref log; one that is older than the indexed entry changes nothing."""
        with self._write() as connection:
            self._put_refs(connection, [ref_row(entry)])

    def get(self, digest: Digest) -> Indexed | None:
        """The indexed facts of an artifact; None when it is not indexed."""
        names = [field.name for field in fields(Indexed)]
        columns = [getattr(ArtifactRow, name) for name in names]
        with self._read() as connection:
            row = connection.execute(select(*columns).where(ArtifactRow.digest == digest)).one_or_none()
            return None if row is None else Indexed(Digest(row[0]), *row[1:])

    def search(self, query: Query = Query()) -> list[SearchResult]:  # noqa: B008 (frozen)
        """Live refs that match, in the query's order; refs whose artifact is not indexed are left out.

        Raises:
            UsageError: the query is malformed.
        """
        select_refs = statement(query)
        with self._read() as connection:
            rows = connection.execute(select_refs).mappings()
            return [SearchResult(**{**row, "digest": Digest(row["digest"])}) for row in rows]

    def filled_from(self) -> str | None:
        """Uuid of the registry that the index was last rebuilt from; None when it never was."""
        with self._read() as connection:
            return connection.execute(select(FilledRow.source)).scalar()

    def rebuild(
        self, entries: Iterable[RefEntry], manifests: Iterable[tuple[Digest, Manifest]], *, registry: str = ""
    ) -> tuple[int, int]:
        """Replace the index; see :meth:`maskreg.catalog.base.Catalog.rebuild`.

        ``entries`` and ``manifests`` are read inside the transaction that writes them: another writer waits for its
        end and then adds to the new index, and an error rolls back to the old one.
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

    # What only the catalog holds

    def record(self, measurement: Measurement) -> None:
        """Keep a measurement. The latest ``rlvr_overlap`` of a whole mask also becomes searchable."""
        with self._write() as connection:
            # Locking the artifact's row serializes two recordings, so that the one with the higher id also writes last.
            locked = select(ArtifactRow.digest).where(ArtifactRow.digest == measurement.digest)
            connection.execute(locked.with_for_update()).all()
            connection.execute(self._insert(MeasurementRow).values(record_row(measurement)))
            if measurement.metric == RLVR_OVERLAP:
                _refresh_overlap(connection, measurement.digest)

    def measurements(self, digest: Digest) -> list[Measurement]:
        """All measurements of an artifact, in the order of recording."""
        columns = [getattr(MeasurementRow, field.name) for field in fields(Measurement)]
        rows = select(*columns).where(MeasurementRow.digest == digest).order_by(MeasurementRow.id)
        with self._read() as connection:
            return [Measurement(Digest(row[0]), *row[1:]) for row in connection.execute(rows)]

    def log(self, event: Event) -> None:
        """Append an event to the audit log."""
        with self._write() as connection:
            connection.execute(self._insert(EventRow).values(record_row(event)))

    def events(
        self, *, subject: str = "", action: str = "", by: str = "", since: datetime | None = None, limit: int = 100
    ) -> list[Event]:
        """The newest events of the audit log, newest first; all conditions that are given must hold."""
        rows = select(*(getattr(EventRow, field.name) for field in fields(Event)))
        for column, value in ((EventRow.subject, subject), (EventRow.action, action), (EventRow.by, by)):
            rows = rows.where(column == value) if value else rows
        if since is not None:
            rows = rows.where(EventRow.at >= since)
        with self._read() as connection:
            newest = connection.execute(rows.order_by(EventRow.id.desc()).limit(limit))
            return [Event(*row) for row in newest]

    def saw_source(self, root: str, path: str) -> None:
        """Remember that the checkpoint of identity ``root`` is at ``path`` now."""
        row = self._insert(SeenSourceRow).values(root=root, path=path, at=datetime.now(UTC))
        with self._write() as connection:
            connection.execute(row.on_conflict_do_update(index_elements=["root", "path"], set_={"at": row.excluded.at}))

    def seen_sources(self, root: str) -> list[str]:
        """Paths where the checkpoint of identity ``root`` was seen, the latest first."""
        paths = select(SeenSourceRow.path).where(SeenSourceRow.root == root)
        with self._read() as connection:
            newest = paths.order_by(SeenSourceRow.at.desc(), SeenSourceRow.id.desc())
            return list(connection.execute(newest).scalars())

    # Transactions

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the exclusive lock ``name`` of this catalog until the block ends.

        PostgreSQL: an advisory lock (64 bits of the name's hash) on a connection of its own; other names and other
        writes go on. SQLite has one write lock per file, so the lock is that write transaction, and all that this
        thread reads and writes inside the block joins it: a second connection would wait for the first for ever.

        Raises:
            TryAgainError: it was held by another for too long.
        """
        with translated(self._address), self._write_engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                # Bound to the transaction, not the session: a pooling proxy may hand the session to another client.
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
        # Entries arrive in any order; the one with the higher number is newer.
        newer = row.excluded.n >= RefRow.n
        upsert = row.on_conflict_do_update(index_elements=key, set_=_replaced(row, rows[0]), where=newer)
        connection.execute(upsert, rows)


def _replaced(insert: sqlite.Insert | postgresql.Insert, row: Row) -> dict[str, ColumnElement[Any]]:
    # Other columns of an existing row (rlvr_overlap) stay as they are.
    return {name: insert.excluded[name] for name in row}


def _refresh_overlap(connection: Connection, digest: Digest | None = None) -> None:
    # The latest recording counts, even one older than the row: an artifact may be dropped and indexed again.
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
