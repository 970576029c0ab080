"""A catalog in SQLite or PostgreSQL, through SQLAlchemy."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, and_, delete, select, text
from sqlalchemy.dialects import postgresql, sqlite

from maskreg.catalog.query import Answer, Query, SearchResult
from maskreg.catalog.records import RLVR_OVERLAP, Event, Indexed, Measurement
from maskreg.catalog.sql.address import Address, parse_address
from maskreg.catalog.sql.comparing import differing
from maskreg.catalog.sql.engine import WRITE, make_engine, reading
from maskreg.catalog.sql.faults import readable_rows, translated
from maskreg.catalog.sql.models import ArtifactRow, EventRow, FilledRow, MeasurementRow, RefRow, SeenSourceRow
from maskreg.catalog.sql.numbers import all_numbers, is_large, numbers_among
from maskreg.catalog.sql.recorded import recorded_overlap, recorded_overlaps
from maskreg.catalog.sql.salvage import drop_damaged
from maskreg.catalog.sql.schema import bring_up, installed, refuse_behind, refuse_newer
from maskreg.catalog.sql.seals import checked_rows, dicts, sum_anew, summing
from maskreg.catalog.sql.statement import events, matches, unindexed
from maskreg.catalog.sql.words import drop_words
from maskreg.catalog.sql.writing import change_filled, forget_unread, put_artifacts, put_refs
from maskreg.catalog.tables.columns import HEAD
from maskreg.catalog.tables.filesystem import writable
from maskreg.catalog.tables.matching import answer_from, measured
from maskreg.catalog.tables.rows import (
    NO_OVERLAP,
    artifact_row,
    batches,
    event_of,
    indexed_of,
    measurement_of,
    pair_of,
    record_row,
    ref_row,
    unread_in,
    with_overlap,
)
from maskreg.catalog.tables.seals import SUMMED, check_seals, sealed
from maskreg.closing import Closing
from maskreg.digest import Digest
from maskreg.errors import CorruptError

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest
    from maskreg.ref import Ref
    from maskreg.store.reflog import RefEntry

_REF_KEY = ("project", "name", "tag")


class SqlCatalog(Closing):
    """A :class:`~maskreg.catalog.base.Catalog` in a database.

    Attributes:
        safe_refs: True for PostgreSQL, whose locks hold for all machines.
    """

    keeps_up = False

    def __init__(self, address: Address, engine: Engine) -> None:
        self._address = address
        self._engine = engine
        self._read_engine = reading(engine)
        self._write_engine = engine.execution_options(**{WRITE: True})
        self._insert = sqlite.insert if address.sqlite else postgresql.insert
        self._held = threading.local()
        self.safe_refs = not address.sqlite
        # Even when close is never called, and before the interpreter shuts down.
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

    @property
    def _unchecked(self) -> bool:
        # A server checks its pages, and memory is not a disk.
        return self._address.path is None

    def close(self) -> None:
        """Close every connection."""
        self._close()

    # The index

    def put_artifact(self, digest: Digest, manifest: Manifest) -> None:
        """Index an artifact; indexing it again changes nothing."""
        with self._write() as connection, summing(connection, "artifacts", ArtifactRow.digest == digest):
            put_artifacts(connection, [artifact_row(digest, manifest, recorded_overlap(connection, digest))])

    def drop_artifact(self, digest: Digest) -> None:
        """Remove an artifact from the index; its measurements stay."""
        with self._write() as connection, summing(connection, "artifacts", ArtifactRow.digest == digest):
            connection.execute(delete(ArtifactRow).where(ArtifactRow.digest == digest))

    def put_ref(self, entry: RefEntry) -> None:
        """Index an entry of a ref log; one that is older than the indexed entry changes nothing."""
        row = ref_row(entry)
        key = and_(*(getattr(RefRow, name) == row[name] for name in _REF_KEY))
        with self._write() as connection:
            with summing(connection, "refs", key):
                put_refs(connection, [row])
            forget_unread(connection, entry)

    def get(self, digest: Digest) -> Indexed | None:
        """The indexed facts of an artifact; None when it is not indexed."""
        with self._read() as connection:
            same = select(ArtifactRow.__table__).where(ArtifactRow.digest == digest)
            rows = dicts(connection.execute(same))
            check_seals("artifacts", rows)
            return indexed_of(rows[0]) if rows else None

    def number(self, ref: Ref) -> int:
        """Number of the indexed entry of a tag; 0 when there is none."""
        values = (ref.project, ref.name, ref.tag)
        key = and_(*(getattr(RefRow, name) == value for name, value in zip(_REF_KEY, values, strict=True)))
        with self._read() as connection:
            rows = dicts(connection.execute(select(RefRow.__table__).where(key)))
            check_seals("refs", rows)
            return int(rows[0]["n"]) if rows else 0

    def numbers(self, refs: Collection[Ref]) -> dict[Ref, int]:
        """Number of the indexed entry of each of these tags that is indexed."""
        with self._read() as connection:
            return numbers_among(connection, refs)

    def all_numbers(self) -> dict[Ref, int]:
        """Number of the indexed entry of every tag, however many there are."""
        with self._read() as connection:
            return all_numbers(connection)

    def followed(self) -> int | None:
        """Generation of the store's journal up to which the index took in what moved; None when it never did."""
        with self._read() as connection:
            return connection.execute(select(FilledRow.followed)).scalar()

    def follow(self, generation: int) -> None:
        """Remember that the index took in what moved up to this generation of the store's journal."""
        with self._write() as connection:
            change_filled(connection, followed=generation)

    def search(self, query: Query = Query()) -> list[SearchResult]:  # noqa: B008 (frozen)
        """Live refs that match, in the query's order; refs whose artifact is not indexed are left out.

        Raises:
            UsageError: the query is malformed.
        """
        if not self._unchecked:
            return self.answer(query).results
        with self._read() as connection:
            return matches(connection, query)

    def answer(self, query: Query) -> Answer:
        """The matches, and what the index knows it lacks.

        Raises:
            UsageError: the query is malformed.
        """
        query.check()
        with self._read() as connection:
            unread = self._unread(connection)
            if self._unchecked and is_large(connection):
                return Answer(matches(connection, query), [], unread, None)
            if self._unchecked:
                live = matches(connection, query)
                lacking = [pair_of(row) for row in dicts(connection.execute(unindexed()))]
                return Answer(live, lacking, unread, all_numbers(connection))
            refs, artifacts = (checked_rows(connection, name) for name in ("refs", "artifacts"))
            return answer_from(refs, artifacts, query, unread)

    def _unread(self, connection: Connection) -> dict[str, str]:
        return unread_in(dicts(connection.execute(select(FilledRow.__table__))))

    def check(self) -> None:
        """Compare the whole content with what was written; see :meth:`maskreg.catalog.base.Catalog.check`."""
        self.check_file()
        with self._read() as connection:
            for name in (*SUMMED, "events", "filled"):
                checked_rows(connection, name)

    def check_file(self) -> None:
        """Let SQLite look at the structure of its file; do nothing for a server.

        Raises:
            CorruptError: the file is damaged.
        """
        with self._read() as connection:
            if self._address.sqlite:
                faults = connection.execute(text("PRAGMA integrity_check(1)")).scalars().all()
                if faults != ["ok"]:
                    raise CorruptError(str(self._address), str(faults[0]), catalog_damaged=True)

    def differing(
        self,
        entries: Iterable[RefEntry],
        manifests: Iterable[tuple[Digest, Manifest]],
        *,
        except_refs: Collection[Ref] = (),
        except_artifacts: Collection[Digest] = (),
    ) -> tuple[str, ...]:
        """What the index has otherwise than the store; see :meth:`maskreg.catalog.base.Catalog.differing`."""
        with self._read() as connection:
            return tuple(differing(connection, entries, manifests, except_refs, except_artifacts))

    def filled_from(self) -> str | None:
        """Uuid of the registry that the index was last rebuilt from; None when it never was."""
        with self._read() as connection:
            return connection.execute(select(FilledRow.source)).scalar()

    def rebuild(
        self,
        entries: Iterable[RefEntry],
        manifests: Iterable[tuple[Digest, Manifest]],
        *,
        registry: str = "",
        unread: Mapping[str, str] = MappingProxyType({}),
        followed: int | None = None,
    ) -> tuple[int, int, int]:
        """Replace the index; see :meth:`maskreg.catalog.base.Catalog.rebuild`.

        ``entries`` and ``manifests`` are read inside the transaction that writes them: another writer waits for its
        end and then adds to the new index, and an error rolls back to the old one.
        """
        refs = artifacts = 0
        with self._write() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("LOCK TABLE artifacts, refs IN SHARE ROW EXCLUSIVE MODE"))
            lost = drop_damaged(connection)
            overlaps = recorded_overlaps(connection)
            for table in (RefRow, ArtifactRow, FilledRow):
                connection.execute(delete(table))
            drop_words(connection)
            for rows in batches(ref_row(entry) for entry in entries):
                put_refs(connection, rows)
                refs += len(rows)
            for rows in batches(artifact_row(d, m, overlaps.get(d, NO_OVERLAP)) for d, m in manifests):
                put_artifacts(connection, rows)
                artifacts += len(rows)
            for name in SUMMED:
                sum_anew(connection, name)
            filled = {"source": registry, "at": datetime.now(UTC), "unread": dict(unread), "followed": followed}
            connection.execute(self._insert(FilledRow).values(sealed("filled", filled)))
        return refs, artifacts, lost

    # What only the catalog holds

    def record(self, measurement: Measurement) -> None:
        """Keep a measurement. The latest ``rlvr_overlap`` of a whole mask also becomes searchable."""
        with self._write() as connection:
            # Locking the artifact's row serializes two recordings, so that the one with the higher id also writes last.
            locked = select(ArtifactRow.__table__).where(ArtifactRow.digest == measurement.digest)
            artifacts = dicts(connection.execute(locked.with_for_update()))
            with summing(connection, "measurements", MeasurementRow.digest == measurement.digest):
                connection.execute(self._insert(MeasurementRow).values(record_row(measurement)))
            for artifact in artifacts if measurement.metric == RLVR_OVERLAP else ():
                # A damaged row must not get a seal that fits.
                check_seals("artifacts", [artifact])
                row = with_overlap(artifact, recorded_overlap(connection, measurement.digest))
                with summing(connection, "artifacts", ArtifactRow.digest == measurement.digest):
                    put_artifacts(connection, [row])

    def measurements(self, digest: Digest, *, metrics: Collection[str] = (), against: str = "") -> list[Measurement]:
        """Measurements of an artifact, in the order of recording."""
        with self._read() as connection:
            if self._unchecked:
                own = select(MeasurementRow.__table__).where(MeasurementRow.digest == digest)
                own = own.where(MeasurementRow.metric.in_(metrics)) if metrics else own
                own = own.where(MeasurementRow.against == against) if against else own
                rows = dicts(connection.execute(own))
            else:
                rows = measured(checked_rows(connection, "measurements"), digest, metrics, against)
            return [measurement_of(row) for row in sorted(rows, key=itemgetter("id"))]

    def log(self, event: Event) -> None:
        """Append an event to the audit log."""
        with self._write() as connection:
            connection.execute(self._insert(EventRow).values(record_row(event)))

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
        rows = events(subject=subject, action=action, by=by, project=project, since=since, before=before)
        with self._read() as connection:
            newest = dicts(connection.execute(rows.limit(limit)))
            check_seals("events", newest)
            return [event_of(row) for row in newest]

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
        with translated(self._address), readable_rows(self._address):
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
            with self._read_engine.connect() as connection:
                yield connection
