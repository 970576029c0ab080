"""The rows of a large catalog, written by COPY in several processes.

What is synthetic: names, cards and figures are drawn at random, and no manifest stands behind a digest. What is real:
the schema, its indexes, and the seal of every row, which is the catalog's own. Ten tags point to each artifact, and a
hundred belong to each name::

    tag 1,234 of 10,000,000    team-0012/qwen3-8b-run-0000012:step-00034    artifact 123
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
from psycopg import sql

from maskreg.catalog.sql import upgrade
from maskreg.catalog.tables.columns import TABLES, Row
from maskreg.catalog.tables.seals import sealed
from maskreg.catalog.tables.words import indexed_words
from scripts.bench.service.filling import FAMILIES, LICENSES, METHODS, START, WORDS

TAGS_OF_ARTIFACT = 10
TAGS_OF_NAME = 100
NAMES_OF_PROJECT = 100
SECONDS_APART = 3
TOPICS = tuple(f"{word}-{number:02d}" for word in WORDS for number in range(20))
"""Words of descriptions; each stands in about one of forty."""

_PARTS = 8


def name_of(tag: int) -> str:
    """The name of a tag, by its number."""
    number = tag // TAGS_OF_NAME
    return f"{FAMILIES[number % len(FAMILIES)]}-run-{number:07d}"


def project_of(tag: int) -> str:
    """The project of a tag, by its number."""
    return f"team-{tag // TAGS_OF_NAME // NAMES_OF_PROJECT:04d}"


def tag_of(tag: int) -> str:
    """The tag's own part of the reference, by its number."""
    return f"step-{tag % TAGS_OF_NAME:05d}"


def digest_of(artifact: int) -> str:
    """Digest of an artifact, by its number."""
    return f"sha256:{hashlib.sha256(b'artifact %d' % artifact).hexdigest()}"


def artifact_row(number: int) -> Row:
    """The row of an artifact."""
    draw = random.Random(number)
    density = draw.uniform(0.05, 0.6)
    has_ffn = number % 20 != 0
    lift = draw.gauss(1.0, 0.08)
    numel = draw.choice((1_700_000_000, 8_000_000_000, 70_000_000_000))
    has_overlap = number % 10 == 0
    row: Row = {
        "digest": digest_of(number),
        "kind": ("mask", "delta", "delta", "delta", "baseline")[number % 5],
        "rule": "exact",
        "exact": True,
        "density": density,
        "ffn_density": density * lift if has_ffn else None,
        "ffn_share": draw.uniform(0.5, 0.8) if has_ffn else None,
        "ffn_lift": lift if has_ffn else None,
        "nnz": int(numel * density),
        "numel": numel,
        "params": numel,
        "size": int(numel * density / 4) + number,
        "source_root": f"sha256:{number % 500:064x}",
        "source_hub": f"org/model-{number % 500}@main",
        "target_root": digest_of(-number - 1),
        "rlvr_overlap": draw.uniform(0.8, 3.0) if has_overlap else None,
        "rlvr_against": digest_of(0) if has_overlap else None,
    }
    return sealed("artifacts", row)


def ref_row(tag: int) -> Row:
    """The row of a tag; one in a hundred was removed."""
    draw = random.Random(tag)
    name, project = name_of(tag), project_of(tag)
    family = FAMILIES[tag // TAGS_OF_NAME % len(FAMILIES)]
    description = f"{' '.join(draw.choices(TOPICS, k=6))} for experiment {tag:08d}"
    is_removed = tag % 100 == 99
    row: Row = {
        "project": project,
        "name": name,
        "tag": tag_of(tag),
        "n": 2 if is_removed else 1,
        "digest": None if is_removed else digest_of(tag // TAGS_OF_ARTIFACT),
        "deleted": is_removed,
        "family": family,
        "method": draw.choice(METHODS),
        "license": draw.choice(LICENSES),
        "description": description,
        "meta": {"seed": str(tag % 7)},
        "by": f"user-{tag // TAGS_OF_NAME % 500:03d}",
        "at": _at(tag),
        "origin": "",
        "words": indexed_words(name, project, family, description),
    }
    return sealed("refs", row)


def event_row(number: int) -> Row:
    """The row of an event: an artifact that was pushed."""
    tag = number * TAGS_OF_ARTIFACT
    detail = {"digest": digest_of(number), "n": 1}
    subject = f"{project_of(tag)}/{name_of(tag)}:{tag_of(tag)}"
    by = f"user-{number % 500:03d}"
    return sealed("events", {"at": _at(tag), "by": by, "action": "push", "subject": subject, "detail": detail})


def _at(tag: int) -> datetime:
    return START + timedelta(seconds=tag * SECONDS_APART)


ROWS: dict[str, Callable[[int], Row]] = {"artifacts": artifact_row, "refs": ref_row, "events": event_row}


def fill_postgres(url: str, artifacts: int, *, registry: str, processes: int = 2) -> None:
    """Fill the catalog in an empty PostgreSQL database; indexes are made when the rows are there.

    Args:
        url: of the database, as SQLAlchemy has it.
        artifacts: how many; ten times as many tags.
        registry: uuid of the registry that it shall be an index of.
        processes: that write at the same time.
    """
    upgrade(url)
    address = url.replace("+psycopg", "")
    with psycopg.connect(address, autocommit=True) as connection:
        names, definitions = _indexes(connection)
        for name in names:
            connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(name)))
        with ProcessPoolExecutor(processes) as pool:
            for table, times in {"artifacts": 1, "refs": TAGS_OF_ARTIFACT, "events": 1}.items():
                list(pool.map(partial(_copy, address, table), _ranges(artifacts * times)))
        connection.execute("SET maintenance_work_mem = '1GB'")
        connection.execute("SET work_mem = '256MB'")
        connection.execute(
            "INSERT INTO words SELECT DISTINCT unnest(string_to_array(substr(words, 2), E'\\n')) FROM refs"
        )
        for definition in definitions:
            connection.execute(definition.encode())
        row = sealed("filled", {"source": registry, "at": datetime.now(UTC), "unread": {}, "followed": 0})
        connection.execute(
            "INSERT INTO filled (source, at, unread, followed, seal) VALUES (%s, %s, %s, %s, %s)",
            (row["source"], row["at"], json.dumps(row["unread"]), row["followed"], row["seal"]),
        )
        connection.execute("VACUUM ANALYZE")


def _indexes(connection: psycopg.Connection[Any]) -> tuple[list[str], list[str]]:
    found = connection.execute(
        "SELECT indexname, indexdef FROM pg_indexes JOIN pg_class ON relname = indexname"
        " JOIN pg_index ON indexrelid = pg_class.oid WHERE schemaname = 'public' AND NOT indisunique"
    ).fetchall()
    targets = connection.execute(
        "SELECT relname, attnum, attstattarget FROM pg_attribute JOIN pg_class ON attrelid = pg_class.oid"
        " WHERE relkind = 'i' AND attstattarget > 0"
    ).fetchall()
    # What statistics are gathered of an index goes with it.
    statistics = [f"ALTER INDEX {name} ALTER {column} SET STATISTICS {target}" for name, column, target in targets]
    return [name for name, _ in found], [*(definition for _, definition in found), *statistics]


def _ranges(count: int) -> Iterator[range]:
    step = -(-count // _PARTS)
    return (range(start, min(start + step, count)) for start in range(0, count, step))


def _copy(address: str, table: str, numbers: Sequence[int]) -> None:
    columns = [name for name in TABLES[table] if name != "id"]
    make = ROWS[table]
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))
    )
    with psycopg.connect(address) as connection, connection.cursor() as cursor, cursor.copy(statement) as copy:
        for number in numbers:
            row = make(number)
            copy.write_row([_plain(row[name]) for name in columns])


def _plain(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict) else value
