"""Table rows from manifests, ref entries, measurements and events, and back.

What a search text is compared with: the beginnings of the words of a name, its project, family and description.

A text is split at spaces, and what is left can begin to match wherever a letter or digit follows none::

    QWEN3-8B-run-07     qwen3-8b-run-07    8b-run-07    run-07    07
    "8b-r" matches, "3-8b" does not

So one search word is the beginning of one indexed word, which an index finds without looking at anything else. Where
a script writes no spaces between words, each of its characters begins one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, fields
from itertools import islice
from typing import TYPE_CHECKING, Any

from maskreg.catalog.query import COLUMNS, Event, Measurement, SearchResult
from maskreg.digest import Digest
from maskreg.ref import Ref

if TYPE_CHECKING:
    from sqlalchemy import RowMapping

    from maskreg.artifact.manifest import Manifest
    from maskreg.store.reflog import RefEntry


Row = dict[str, Any]
"""Values by column name."""

# Indexed columns, written by others at any length; a PostgreSQL index entry holds at most 2,704 bytes.
_LABEL = 200
_LARGEST = (1 << 63) - 1
_FIELDS = tuple(COLUMNS)


def artifact_row(digest: Digest, manifest: Manifest) -> Row:
    """The facts of a manifest; the recorded overlap is not among them."""
    facts = {column.name: column.of(manifest) for column in COLUMNS.values() if column.of is not None}
    return _cleaned({"digest": digest, **facts})


def ref_row(entry: RefEntry) -> Row:
    """The columns of a ref."""
    card = entry.card
    return _cleaned(
        {
            "project": entry.project,
            "name": entry.name,
            "tag": entry.tag,
            "n": min(entry.n, _LARGEST),
            "digest": None if entry.deleted else entry.digest,
            "deleted": entry.deleted,
            "family": card.family[:_LABEL],
            "method": card.method[:_LABEL],
            "license": card.license[:_LABEL],
            "signed": "yes" if entry.signer else "no",
            "description": card.description,
            "by": entry.by,
            "at": entry.at,
            "words": indexed_words(entry.name, entry.project, card.family, card.description),
        }
    )


def record_row(record: Measurement | Event) -> Row:
    """The columns of a measurement or an event; the database numbers it."""
    row = {**asdict(record), "detail": dict(record.detail)}
    del row["id"]
    return row


def result_of(row: RowMapping) -> SearchResult:
    """The search result of a joined row."""
    return SearchResult(**{**{name: row[name] for name in _FIELDS}, "digest": Digest(row["digest"])})


def measurement_of(row: RowMapping) -> Measurement:
    """The measurement of a row."""
    return Measurement(
        **{**{each.name: row[each.name] for each in fields(Measurement)}, "digest": Digest(row["digest"])}
    )


def event_of(row: RowMapping) -> Event:
    """The event of a row."""
    return Event(**{each.name: row[each.name] for each in fields(Event)})


def ref_of_row(row: RowMapping) -> Ref:
    """The ref of a row."""
    return Ref(row["project"], row["name"], row["tag"])


def numbers_of(rows: Iterable[RowMapping]) -> dict[Ref, int]:
    """Number of the indexed entry by ref."""
    return {ref_of_row(row): row["n"] for row in rows}


def _cleaned(row: Row) -> Row:
    # As it will be read back, so that rows can be compared.
    return {name: clean(value) if isinstance(value, str) else value for name, value in row.items()}


MAX_WORD = 64
"""Characters by which words are compared."""

MAX_WORDS = 1000
"""Words of a name that are indexed, the first ones; PostgreSQL holds 1 MiB of them."""

SEPARATOR = "\n"
"""Stands before each word of the column ``words``; no word holds one."""

# Hiragana, katakana and Han have no case and no spaces. An underscore is no letter.
_BEGINNING = re.compile(r"^.|(?<![^\W_])[^\W_]|[\u3040-\u30ff\u3400-\u9fff]")
_DIGEST_PREFIX = re.compile(r"(?:sha256:)?([0-9a-f]{4,64})")


def clean(text: str) -> str:
    """``text`` with what one of the databases cannot store replaced.

    Cards come from outside: PostgreSQL refuses NUL, and both refuse a lone surrogate.
    """
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def indexed_words(*texts: str) -> str:
    """The column ``words`` of these texts: every word in which a search can begin to match, case-folded, each once.

    Case is folded here, since the databases' own ``lower()`` differ outside ASCII.
    """
    words = dict.fromkeys(
        part[beginning.start() : beginning.start() + MAX_WORD]
        for text in texts
        for part in words_of(text)
        for beginning in _BEGINNING.finditer(part)
    )
    return "".join(f"{SEPARATOR}{word}" for word in islice(words, MAX_WORDS))


def words_of(text: str) -> list[str]:
    """The words of a text, between its spaces, in lower case."""
    return clean(text).casefold().split()


def digest_prefix(word: str) -> str:
    """The beginning of digests that a word of a search can mean; empty when it means none."""
    match = _DIGEST_PREFIX.fullmatch(word)
    return f"sha256:{match[1]}" if match else ""
