"""Queries, answers and records as JSON, for a catalog that is asked over HTTP."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

from maskreg.catalog.query import RANGE_KEYS, Answer, Position, Query, SearchResult
from maskreg.catalog.records import Event, Indexed, Measurement
from maskreg.digest import Digest
from maskreg.document import checked
from maskreg.errors import FormatError
from maskreg.ref import Card, Ref
from maskreg.signature import PublicKey
from maskreg.store.reflog import RefEntry

Row = dict[str, Any]


def query_row(query: Query) -> Row:
    """A query as JSON; open ends of ranges are null."""
    row = {field.name: getattr(query, field.name) for field in fields(query)}
    for key in RANGE_KEYS:
        if row[key] is not None:
            row[key] = [end if math.isfinite(end) else None for end in row[key]]
    row["projects"] = None if query.projects is None else sorted(query.projects)
    row["hidden"] = sorted(query.hidden)
    if query.after is not None:
        value = query.after.value
        at = value.isoformat() if isinstance(value, datetime) else None
        row["after"] = {"value": None if at else value, "at": at, "ref": _path(query.after.ref)}
    return row


def query_of(row: Mapping[str, Any]) -> Query:
    """A query from JSON.

    Raises:
        FormatError: not one.
    """
    values = dict(row)
    try:
        for key in RANGE_KEYS:
            if (ends := values.get(key)) is not None:
                low, high = ends
                values[key] = (-math.inf if low is None else float(low), math.inf if high is None else float(high))
        if values.get("projects") is not None:
            values["projects"] = frozenset(map(str, values["projects"]))
        values["hidden"] = frozenset(map(str, values.get("hidden", ())))
        if (after := values.get("after")) is not None:
            at = datetime.fromisoformat(after["at"]) if after.get("at") else after.get("value")
            values["after"] = Position(at, _ref(after["ref"]))
        query = Query(**values)
        texts = (getattr(query, f.name) for f in fields(query) if f.type == "str")
        if not all(isinstance(text, str) for text in texts) or not isinstance(query.limit, int | None):
            raise TypeError("a text was expected")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"not a query: {error}") from error
    return query


def answer_row(answer: Answer) -> Row:
    """An answer as JSON."""
    return {
        "results": [{**asdict(result), "at": result.at.isoformat()} for result in answer.results],
        "unindexed": [[_path(ref), digest] for ref, digest in answer.unindexed],
        "unread": answer.unread,
        "numbers": None if answer.numbers is None else [[_path(ref), n] for ref, n in answer.numbers.items()],
    }


def answer_of(row: Mapping[str, Any]) -> Answer:
    """An answer from JSON.

    Raises:
        ValueError, TypeError, KeyError: not one.
    """
    results = [checked(SearchResult, result, "a result") for result in row["results"]]
    for result in results:
        # Names become keys and parts of commands.
        _ref((result.project, result.name, result.tag))
    return Answer(
        results,
        [(_ref(path), Digest(digest)) for path, digest in row["unindexed"]],
        {str(key): str(reason) for key, reason in row["unread"].items()},
        None if row["numbers"] is None else {_ref(path): int(n) for path, n in row["numbers"]},
    )


def indexed_of(row: Mapping[str, Any]) -> Indexed:
    """The indexed facts of an artifact from JSON; as JSON they are their fields.

    Raises:
        FormatError: not they.
    """
    return checked(Indexed, dict(row), "the facts of an artifact")


def record_row(record: Measurement | Event) -> Row:
    """A measurement or an event as JSON."""
    return {**asdict(record), "at": record.at.isoformat()}


def measurement_of(row: Mapping[str, Any]) -> Measurement:
    """A measurement from JSON.

    Raises:
        FormatError: not one.
    """
    return checked(Measurement, dict(row), "a measurement")


def event_of(row: Mapping[str, Any]) -> Event:
    """An event from JSON.

    Raises:
        FormatError: not one.
    """
    return checked(Event, dict(row), "an event")


def entry_row(entry: RefEntry) -> Row:
    """The fields of a ref entry as JSON; an index takes entries that no log would."""
    row = {field.name: getattr(entry, field.name) for field in fields(entry) if field.init}
    return {**row, "card": entry.card.to_json(), "at": entry.at.isoformat()}


def entry_of(row: Mapping[str, Any]) -> RefEntry:
    """A ref entry from its fields.

    Raises:
        FormatError: not one.
    """
    try:
        values = dict(row)
        for key in ("digest", "previous", "removed"):
            values[key] = None if row[key] is None else Digest(row[key])
        signer = None if row["signer"] is None else PublicKey(row["signer"])
        card = row["card"]
        values |= {"card": Card(**{**card, "meta": dict(card.get("meta", {}))}), "signer": signer}
        return RefEntry(**{**values, "at": datetime.fromisoformat(row["at"])})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"not a ref entry: {error}") from error


def _ref(path: Sequence[Any]) -> Ref:
    project, name, tag = path
    return Ref.parse(f"{project}/{name}:{tag}")


def _path(ref: Ref) -> list[str]:
    return [ref.project, ref.name, ref.tag]
