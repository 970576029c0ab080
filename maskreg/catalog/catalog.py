"""A catalog in SQLite or PostgreSQL: an index over a registry's store, and records that only it keeps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from maskreg.catalog.engine import parse_address
from maskreg.catalog.models import ARTIFACTS, EVENTS, FILLED, MEASUREMENTS, REFS, SEEN_SOURCES, WORD_LEXEMES
from maskreg.catalog.query import (
    BARS,
    COLUMN_OF_SORT,
    COLUMNS,
    MOST_VALUES,
    RANGE_KEYS,
    RLVR_OVERLAP,
    SAMPLE,
    Answer,
    Counts,
    Event,
    Histogram,
    Measurement,
    Query,
    SearchResult,
)
from maskreg.catalog.rows import (
    MAX_WORD,
    SEPARATOR,
    Row,
    artifact_row,
    digest_prefix,
    event_of,
    measurement_of,
    numbers_of,
    record_row,
    ref_of_row,
    ref_row,
    result_of,
    words_of,
)
from maskreg.catalog.schema import Connections
from maskreg.digest import Digest
from maskreg.errors import CorruptError, RefusedError
from maskreg.ref import Ref

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest
    from maskreg.store.reflog import RefEntry


T = TypeVar("T")

_BATCH = 500
_KEY = (REFS.c.project, REFS.c.name, REFS.c.tag)
_NUMBERED = sa.select(*_KEY, REFS.c.n)
# Live refs whose artifact is not in the index.
_UNINDEXED = (
    sa.select(*_KEY, REFS.c.digest)
    .outerjoin(ARTIFACTS, ARTIFACTS.c.digest == REFS.c.digest)
    .where(REFS.c.deleted.is_(False), ARTIFACTS.c.digest.is_(None))
    .order_by(*_KEY)
)


class Catalog(Connections):
    """An open catalog; safe to use from many threads, except one in memory.

    Artifacts and refs in it are an index: ``rebuild`` recreates them from the store. Measurements, events and seen
    sources exist nowhere else.

    Every method raises ``TryAgainError`` when a lock is held for too long, ``CorruptError`` when the catalog is
    damaged, ``NotAllowedError`` when it cannot be used or written with these rights, and ``UnavailableError`` when its
    server does not answer.
    """

    # The index

    def put_artifact(self, digest: Digest, manifest: Manifest) -> None:
        """Index an artifact; indexing it again changes nothing."""
        with self.write() as connection:
            _put(connection, ARTIFACTS, [artifact_row(digest, manifest)])
            _show_overlaps(connection, ARTIFACTS.c.digest == digest)

    def drop_artifact(self, digest: Digest) -> None:
        """Remove an artifact from the index; its measurements stay."""
        with self.write() as connection:
            connection.execute(sa.delete(ARTIFACTS).where(ARTIFACTS.c.digest == digest))

    def put_ref(self, entry: RefEntry) -> None:
        """Index an entry of a ref log; one that is older than the indexed entry changes nothing."""
        with self.write() as connection:
            _put(connection, REFS, [ref_row(entry)])

    def has(self, digest: Digest) -> bool:
        """Whether an artifact is indexed."""
        with self.read() as connection:
            return bool(connection.execute(sa.select(sa.exists().where(ARTIFACTS.c.digest == digest))).scalar())

    def all_numbers(self) -> dict[Ref, int]:
        """Number of the indexed entry of every tag, removed ones included."""
        with self.read() as connection:
            return numbers_of(connection.execute(_NUMBERED).mappings())

    def numbers(self, refs: Collection[Ref]) -> dict[Ref, int]:
        """Number of the indexed entry of each of these tags that is indexed."""
        rows = _NUMBERED.where(sa.tuple_(*_KEY).in_([(ref.project, ref.name, ref.tag) for ref in refs]))
        with self.read() as connection:
            return numbers_of(connection.execute(rows).mappings())

    def search(self, query: Query = Query()) -> list[SearchResult]:  # noqa: B008 (frozen)
        """Live refs that match, in the query's order; refs whose artifact is not indexed are left out."""
        query.check()
        with self.read() as connection:
            return matches(connection, query)

    def counts(self, query: Query, keys: Collection[str]) -> Counts:
        """How many names match, and by value of these filters; the order, the limit and the position do not matter."""
        query.check()
        filtered = [key for key in keys if key in query.filters]
        with self.read() as connection:
            share = SAMPLE / max(1, connection.execute(sa.select(sa.func.count()).select_from(REFS)).scalar_one())
            counts = _estimated(connection, query, [key for key in keys if key not in filtered], share)
            for key in filtered:
                others = {name: value for name, value in query.filters.items() if name != key}
                own = _estimated(connection, replace(query, filters=others), [key], share)
                counts.values.update(own.values)
                counts.histograms.update(own.histograms)
                counts.estimates.update(own.estimates & {key})
            return counts

    def answer(self, query: Query) -> Answer:
        """What matches, and what the index knows it lacks."""
        query.check()
        with self.read() as connection:
            results = matches(connection, query)
            lacking = connection.execute(_UNINDEXED).mappings()
            rows = connection.execute(_NUMBERED).mappings()
            return Answer(results, [(ref_of_row(row), Digest(row["digest"])) for row in lacking], numbers_of(rows))

    def check(self) -> None:
        """Let SQLite check the structure of its file; a server does that by itself."""
        if not self._address.sqlite:
            return
        with self.read() as connection:
            faults = connection.execute(sa.text("PRAGMA quick_check(1)")).scalars().all()
            if faults != ["ok"]:
                raise CorruptError(str(self._address), str(faults[0]), catalog_damaged=True)

    def filled_from(self) -> str | None:
        """Uuid of the registry that the index was last rebuilt from; None when it never was."""
        with self.read() as connection:
            return connection.execute(sa.select(FILLED.c.source)).scalar()

    def rebuild(
        self, entries: Iterable[RefEntry], manifests: Iterable[tuple[Digest, Manifest]], *, registry: str = ""
    ) -> tuple[int, int]:
        """Replace the index, atomically; measurements, events and seen sources stay.

        ``entries`` and ``manifests`` are read inside the transaction that writes them: another writer waits for its
        end and then adds to the new index, and an error rolls back to the old one.

        Args:
            entries: the newest entry of every ref, deleted ones included.
            manifests: of every artifact.
            registry: uuid of the registry they come from, for ``filled_from``.

        Returns:
            How many refs, deleted ones included, and how many artifacts were indexed.
        """
        refs = artifacts = 0
        with self.write() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.text("LOCK TABLE artifacts, refs IN SHARE ROW EXCLUSIVE MODE"))
            for table in (REFS, ARTIFACTS, FILLED):
                connection.execute(sa.delete(table))
            for batch in _batches(entries):
                _put(connection, REFS, list(map(ref_row, batch)))
                refs += len(batch)
            for pairs in _batches(manifests):
                _put(connection, ARTIFACTS, [artifact_row(digest, manifest) for digest, manifest in pairs])
                artifacts += len(pairs)
            _show_overlaps(connection, ARTIFACTS.c.digest.in_(sa.select(MEASUREMENTS.c.digest).where(_OF_REFERENCE)))
            filled = {"source": registry, "at": datetime.now(UTC)}
            connection.execute(sa.insert(FILLED).values(filled))
        return refs, artifacts

    # What only the catalog holds

    def record(self, measurement: Measurement) -> None:
        """Keep a measurement. The latest ``rlvr_overlap`` of a whole mask also becomes searchable."""
        same = ARTIFACTS.c.digest == measurement.digest
        with self.write() as connection:
            # Locking the artifact's row serializes two recordings, so that the one with the higher id also writes last.
            connection.execute(sa.select(ARTIFACTS.c.digest).where(same).with_for_update())
            connection.execute(sa.insert(MEASUREMENTS).values(record_row(measurement)))
            if measurement.metric == RLVR_OVERLAP:
                _show_overlaps(connection, same)

    def measurements(self, digest: Digest) -> list[Measurement]:
        """Measurements of an artifact, in the order of recording."""
        own = sa.select(MEASUREMENTS).where(MEASUREMENTS.c.digest == digest).order_by(MEASUREMENTS.c.id)
        with self.read() as connection:
            return [measurement_of(row) for row in connection.execute(own).mappings()]

    def measurements_naming(self, digest: Digest, limit: int = 100) -> list[Measurement]:
        """Measurements of an artifact, and of others against it, the newest first."""
        named = sa.or_(MEASUREMENTS.c.digest == digest, MEASUREMENTS.c.against == digest)
        rows = sa.select(MEASUREMENTS).where(named).order_by(MEASUREMENTS.c.id.desc()).limit(limit)
        with self.read() as connection:
            return [measurement_of(row) for row in connection.execute(rows).mappings()]

    def log(self, event: Event) -> None:
        """Append an event to the audit log."""
        with self.write() as connection:
            connection.execute(sa.insert(EVENTS).values(record_row(event)))

    def events(self, *, subject: str = "", action: str = "", limit: int = 100) -> list[Event]:
        """The newest events of the audit log, newest first; both conditions must hold where they are given.

        Args:
            subject: the ref, digest or key it happened to.
            action: what was done.
            limit: at most this many.
        """
        rows = sa.select(EVENTS).order_by(EVENTS.c.id.desc()).limit(limit)
        for column, value in ((EVENTS.c.subject, subject), (EVENTS.c.action, action)):
            rows = rows.where(column == value) if value else rows
        with self.read() as connection:
            return [event_of(row) for row in connection.execute(rows).mappings()]

    def saw_source(self, root: str, path: str) -> None:
        """Remember that the checkpoint of identity ``root`` is at ``path`` now."""
        with self.write() as connection:
            row = _insert(connection)(SEEN_SOURCES).values(root=root, path=path, at=datetime.now(UTC))
            connection.execute(row.on_conflict_do_update(index_elements=["root", "path"], set_={"at": row.excluded.at}))


def move_damaged(url: str) -> Path | None:
    """Rename a damaged SQLite file, so that a new one can be made in its place; None where the catalog is no file."""
    address = parse_address(url)
    if (path := address.path) is None:
        return None
    moved = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
    # The log belongs to the file: left behind, SQLite would replay it into the new one.
    for suffix in ("-wal", "-shm", "-journal", ""):
        part = path.with_name(path.name + suffix)
        try:
            if part.exists():
                part.rename(moved.with_name(moved.name + suffix))
        except OSError as error:
            raise RefusedError(f"{part} cannot be renamed ({error.strerror})", hint=address.folder_step) from error
    return moved


# The latest recording counts, even one older than the row: an artifact can be dropped and indexed again.
_OF_REFERENCE = sa.and_(MEASUREMENTS.c.metric == RLVR_OVERLAP, MEASUREMENTS.c.by_group == "")


def _show_overlaps(connection: sa.Connection, artifacts: sa.ColumnElement[bool]) -> None:
    def latest(name: str) -> Any:
        own = sa.select(MEASUREMENTS.c[name]).where(_OF_REFERENCE, MEASUREMENTS.c.digest == ARTIFACTS.c.digest)
        return own.order_by(MEASUREMENTS.c.id.desc()).limit(1).scalar_subquery()

    values = {"rlvr_overlap": latest("value"), "rlvr_against": latest("against")}
    connection.execute(sa.update(ARTIFACTS).where(artifacts).values(values))


def _put(connection: sa.Connection, table: sa.Table, rows: list[Row]) -> None:
    row = _insert(connection)(table)
    keys = [column.name for column in table.primary_key]
    # Entries arrive in any order; the one with the higher number is newer.
    newer = row.excluded.n >= REFS.c.n if table is REFS else None
    replaced = {name: row.excluded[name] for name in rows[0] if name not in keys}
    connection.execute(row.on_conflict_do_update(index_elements=keys, set_=replaced, where=newer), rows)


def _insert(connection: sa.Connection) -> Any:
    # Importing the dialect of PostgreSQL takes .1 CPU seconds.
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.insert
    from sqlalchemy.dialects import postgresql

    return postgresql.insert


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while batch := list(islice(rest, _BATCH)):
        yield batch


_QUOTED = str.maketrans({"'": "''", "\\": "\\\\"})


def column(name: str) -> sa.Column[Any]:
    """The column of a name in the table of columns; the digest is the ref's."""
    found: sa.Column[Any] = REFS.c[name] if name in REFS.c else ARTIFACTS.c[name]
    return found


def matches(connection: sa.Connection, query: Query) -> list[SearchResult]:
    """Live refs that match, in the query's order.

    Descending order with NULL last is the order of no index, so that a database sorts everything to find the first
    rows. The rows with a value and the rows without are in an index each: two SELECTs, the second only where the first
    did not fill the limit.
    """
    results: list[SearchResult] = []
    for rows in _selects(query, connection.dialect.name):
        if query.limit is None or len(results) < query.limit:
            results += map(result_of, connection.execute(rows).mappings())
    return results[: query.limit]


def _selects(query: Query, dialect: str) -> Iterator[sa.Select[Any]]:
    live = _live(query, dialect, COLUMNS).limit(query.limit).offset(query.offset or None)
    by, after = column(COLUMN_OF_SORT[query.sort]), query.after
    # Databases return ties in any order, which can differ from call to call.
    named: Any = after and sa.tuple_(*_KEY) > sa.tuple_(after.ref.project, after.ref.name, after.ref.tag)
    if by.nullable and query.descending and query.limit is not None and not query.offset:
        if after is None or after.value is not None:
            valued = live.where(by.is_not(None)).order_by(by.desc(), *_KEY)
            yield valued if after is None else valued.where(_behind(by, query, named))
        without = live.where(by.is_(None)).order_by(*_KEY)
        yield without if after is None or after.value is not None else without.where(named)
        return
    order = by.desc() if query.descending else by.asc()
    # PostgreSQL uses an index for the order only where that says the same of NULL.
    rows = live.order_by(order.nulls_last() if by.nullable else order, *_KEY)
    if after is None:
        yield rows
    elif after.value is None:
        yield rows.where(by.is_(None), named)
    else:
        behind = _behind(by, query, named)
        yield rows.where(sa.or_(behind, by.is_(None)) if by.nullable else behind)


def _live(query: Query, dialect: str, names: Iterable[str], below: str = "") -> sa.Select[Any]:
    live = sa.select(*map(column, names)).select_from(REFS).join(ARTIFACTS, ARTIFACTS.c.digest == REFS.c.digest)
    return live.where(REFS.c.deleted.is_(False), *_conditions(query, dialect, below))


def _estimated(connection: sa.Connection, query: Query, keys: list[str], share: float) -> Counts:
    if share >= 1:
        return _counts(connection, query, keys)[0]
    # Digests are random, so those below a bound are a sample, and an index finds them.
    found, artifacts = _counts(connection, query, keys, f"sha256:{int(share * 16**8):08x}")
    # The names of an artifact are in the sample together, so that few artifacts would say little of all names.
    if found.total / share < SAMPLE / 4 or artifacts < SAMPLE / 16:
        return _counts(connection, query, keys)[0]

    def whole(number: int) -> int:
        return int(float(f"{number / share:.2g}"))

    values = {key: {value: whole(number) for value, number in of.items()} for key, of in found.values.items()}
    drawn = {key: each._replace(bars=[*map(whole, each.bars)]) for key, each in found.histograms.items()}
    return Counts(whole(found.total), values, drawn, {"total", *keys})


def _counts(connection: sa.Connection, query: Query, keys: list[str], below: str = "") -> tuple[Counts, int]:
    # The second number is how many artifacts have these names.
    dialect = connection.dialect.name
    # Databases keep the rows of a WITH that is used several times: the join, which takes longest, is made once.
    live = _live(query, dialect, [*keys, "digest"], below).cte()
    nothing = sa.cast(sa.null(), sa.Double)
    artifacts = sa.cast(sa.func.count(live.c.digest.distinct()), sa.Double)
    parts = [
        sa.select(sa.literal(""), sa.literal("").label("value"), artifacts, nothing, sa.func.count()).select_from(live)
    ]
    for key in keys:
        value = live.c[key]
        if key not in RANGE_KEYS:
            some = sa.select(sa.literal(key), value.label("value"), nothing, nothing, sa.func.count())
            some = some.where(value != "").group_by("value").order_by(sa.func.count().desc(), "value")
            parts.append(sa.select(some.limit(MOST_VALUES).subquery()))
            continue
        ends = sa.select(sa.func.min(value).label("low"), sa.func.max(value).label("high")).subquery()
        bar = BARS * (value - ends.c.low) / sa.func.nullif(ends.c.high - ends.c.low, 0, type_=sa.Double)
        # SQLite casts to the integer towards zero, PostgreSQL to the nearest one.
        whole = sa.cast(sa.cast(bar if dialect == "sqlite" else sa.func.floor(bar), sa.Integer), sa.Text).label("value")
        some = sa.select(sa.literal(key), whole, *ends.c, sa.func.count()).select_from(live.join(ends, sa.true()))
        parts.append(some.where(value.is_not(None)).group_by("value", *ends.c))
    counts: dict[str, dict[str, int]] = {key: {} for key in keys if key not in RANGE_KEYS}
    histograms: dict[str, Histogram] = {}
    total, of_artifacts = 0, 0
    for key, value, low, high, number in connection.execute(sa.union_all(*parts)):
        if not key:
            total, of_artifacts = number, int(low)
        elif key in counts:
            counts[key][value] = number
        else:
            # NULL where all are equal; the highest value is the end of the last bar.
            bars = histograms.setdefault(key, Histogram(low, high, [0] * BARS)).bars
            bars[min(int(value or 0), BARS - 1)] += number
    ordered = {key: dict(sorted(of.items(), key=lambda item: (-item[1], item[0]))) for key, of in counts.items()}
    return Counts(total, ordered, histograms, set()), of_artifacts


def _behind(by: sa.Column[Any], query: Query, named: Any) -> sa.ColumnElement[bool]:
    # Of names in ascending order, after (b, ref 2): name >= b AND (name > b OR ref > 2).
    assert query.after is not None
    after = query.after.value
    # The first condition says nothing that the second does not, but an index can begin there.
    first = by <= after if query.descending else by >= after
    return sa.and_(first, sa.or_(by < after if query.descending else by > after, named))


def _conditions(query: Query, dialect: str, below: str) -> Iterator[sa.ColumnElement[bool]]:
    # SQLite has to begin with the index of the sample.
    by = _unindexed if below and dialect == "sqlite" else column
    if below:
        yield REFS.c.digest < below
    for word in words_of(query.text):
        found = _has_word(word, dialect)
        prefix = digest_prefix(word)
        yield sa.or_(found, REFS.c.digest.like(f"{prefix}%")) if prefix else found
    for key, value in query.texts.items():
        yield by(key) == value
    if query.projects is not None:
        # SQLite would read all tags of several projects to sort them; the index of the order has the project, too.
        several = len(query.projects) > 1 and query.limit is not None and dialect == "sqlite"
        yield (_unindexed if several else by)("project").in_(sorted(query.projects))
    if query.hidden:
        yield REFS.c.project.not_in(sorted(query.hidden))
    for key, (low, high) in query.ranges.items():
        # NULL is in no range, not even in one that is open at both ends. Saying so would mislead PostgreSQL, which then
        # takes the share of NULL off twice: where one row of ten has a value, it expects a tenth of the rows.
        yield by(key).between(low, high)


def _unindexed(key: str) -> sa.ColumnElement[Any]:
    # A plus keeps SQLite from the column's index.
    return sa.literal_column(f"+{column(key)}", column(key).type)


def _has_word(word: str, dialect: str) -> sa.ColumnElement[bool]:
    begins = SEPARATOR + word[:MAX_WORD]
    if dialect == "sqlite":
        return sa.func.instr(REFS.c.words, begins) > 0
    # Where rows are read in another order, to look into the text takes a tenth of making lexemes of it. PostgreSQL
    # takes "<> 0" for true of nearly all rows, so that the lexemes decide its estimate of how many match.
    lexeme = f"'{word[:MAX_WORD].translate(_QUOTED)}':*"
    indexed = WORD_LEXEMES.replace("words", "refs.words")
    begun: Any = sa.bindparam("lexeme", lexeme, unique=True)
    asked: Any = sa.text(f"{indexed} @@ CAST(:lexeme AS tsquery)").bindparams(begun)
    return sa.and_(sa.func.strpos(REFS.c.words, begins) != 0, asked)
