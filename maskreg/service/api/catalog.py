"""``/catalog``: the catalog of the served registry, as :class:`maskreg.catalog.http.HttpCatalog` asks it.

People and programs that search want ``/artifacts``; this is the same index, in the terms of the catalog's contract.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends
from fastapi import Query as QueryParameter

from maskreg.artifact.manifest import Manifest
from maskreg.catalog import Catalog, Query
from maskreg.catalog.wire import (
    answer_row,
    entry_of,
    event_of,
    measurement_of,
    query_of,
    record_row,
)
from maskreg.digest import Digest
from maskreg.document import checked, parse_object
from maskreg.errors import FormatError, MaskregError, NotAllowedError, UsageError
from maskreg.ref import Ref
from maskreg.registry.lookup import ever_named
from maskreg.service.access import Needs, Where
from maskreg.service.auth.roles import ROLE_HINT, Principal, Role
from maskreg.service.context import Served, Service
from maskreg.service.documents import DocumentRoute
from maskreg.service.gateway.visibility import check_may_read, may_read, visible
from maskreg.store.entry import ref_of

router = APIRouter(tags=["catalog"], route_class=DocumentRoute)

Reader = Annotated[Principal, Depends(Needs(Role.READER, Where.ANY))]
Writer = Annotated[Principal, Depends(Needs(Role.WRITER, Where.ANY, audited="record measurement"))]
Root = Annotated[Principal, Depends(Needs(Role.ADMIN, Where.SERVER, audited="change index"))]
Row = dict[str, Any]
MAX_ARGUMENTS = 32 << 10
"""Bytes of the arguments of a question."""

Arguments = Annotated[str, QueryParameter(max_length=MAX_ARGUMENTS, description="By name, as a JSON object.")]
Sent = Annotated[Row, Body(description="The arguments, by name.")]


class Question(StrEnum):
    """What whoever may read something may ask."""

    ANSWER = "answer"
    GET = "get"
    NUMBER = "number"
    FILLED_FROM = "filled-from"
    MEASUREMENTS = "measurements"


class Change(StrEnum):
    """What an admin of the server may do to the index as such."""

    PUT_ARTIFACT = "put-artifact"
    PUT_REF = "put-ref"
    DROP_ARTIFACT = "drop-artifact"
    CHECK = "check"
    DIFFERING = "differing"
    REBUILD = "rebuild"
    LOG = "log"
    EVENTS = "events"
    SAW_SOURCE = "saw-source"
    SEEN_SOURCES = "seen-sources"


@router.get("/catalog/{question}")
def ask(question: Question, arguments: Arguments, service: Served, principal: Reader) -> Row:
    """Ask the catalog; what the sender may not see is not in the answer."""
    row = parse_object(arguments.encode(errors="surrogatepass"), "arguments", max_bytes=MAX_ARGUMENTS)
    return _read(lambda: QUESTIONS[question](service, principal, row))


@router.post("/catalog/measurements")
def record(row: Sent, service: Served, principal: Writer) -> Row:
    """Keep a measurement of an artifact, for writers of a project that has a tag to it."""
    return _read(lambda: _record(service, principal, row))


@router.post("/catalog/raw/{change}")
def change(change: Change, row: Sent, service: Served, principal: Root) -> Row:
    """Work on the index as such."""
    return _read(lambda: CHANGES[change](service, row))


def _read(work: Callable[[], Row]) -> Row:
    try:
        return work()
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, MaskregError):
            raise
        fault = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise FormatError(f"malformed arguments: {fault}") from error


def _catalog(service: Service) -> Catalog:
    return service.registry.index.must_open()


def _answer(service: Service, principal: Principal, row: Row) -> Row:
    query = visible(query_of(row), principal)
    query.check()
    answer = _catalog(service).answer(query)
    if answer.unread or answer.unindexed:
        # What was damaged or missing may be there by now; a search takes it in.
        service.registry.search(Query(limit=0))
        answer = _catalog(service).answer(query)

    def is_readable(ref: Ref) -> bool:
        return principal.role(ref.project) >= Role.READER

    return answer_row(
        answer._replace(
            unindexed=[(ref, digest) for ref, digest in answer.unindexed if is_readable(ref)],
            unread={key: why for key, why in answer.unread.items() if is_readable(ref_of(key))},
            numbers=None if answer.numbers is None else {r: n for r, n in answer.numbers.items() if is_readable(r)},
        )
    )


def _get(service: Service, principal: Principal, row: Row) -> Row:
    digest = _digest(row)
    indexed = _catalog(service).get(digest) if may_read(service.registry, principal, digest) else None
    return {"indexed": None if indexed is None else asdict(indexed)}


def _number(service: Service, principal: Principal, row: Row) -> Row:
    project, name, tag = map(str, row["ref"])
    ref = Ref(project, name, tag)
    return {"number": _catalog(service).number(ref) if principal.role(ref.project) >= Role.READER else 0}


def _filled_from(service: Service, principal: Principal, row: Row) -> Row:
    return {"registry": _catalog(service).filled_from()}


def _measurements(service: Service, principal: Principal, row: Row) -> Row:
    digest = _digest(row)
    if not may_read(service.registry, principal, digest):
        return {"measurements": []}
    measurements = _catalog(service).measurements(
        digest, metrics=list(map(str, row.get("metrics", ()))), against=str(row.get("against", ""))
    )
    return {"measurements": [record_row(item) for item in measurements if _may_know(service, principal, item.against)]}


def _may_know(service: Service, principal: Principal, against: str) -> bool:
    try:
        digest = Digest(against)
    except ValueError:
        return True  # a baseline, or nothing
    return may_read(service.registry, principal, digest)


def _record(service: Service, principal: Principal, row: Row) -> Row:
    measurement = measurement_of({**row, "id": 0})
    if principal.server_role < Role.ADMIN:
        check_may_read(service.registry, principal, measurement.digest)
        refs = ever_named(service.registry, measurement.digest)
        if not any(principal.role(ref.project) >= Role.WRITER for ref in refs):
            raise NotAllowedError(
                f"{principal.name} may read {measurement.digest.short} and not judge it: that needs the role writer in "
                "a project that has it",
                hint=ROLE_HINT,
            )
        # The latest one is what a search shows, so its sender does not choose when it was.
        measurement = replace(measurement, by=principal.name, at=datetime.now(UTC))
    _catalog(service).record(measurement)
    return {}


QUESTIONS: dict[Question, Callable[[Service, Principal, Row], Row]] = {
    Question.ANSWER: _answer,
    Question.GET: _get,
    Question.NUMBER: _number,
    Question.FILLED_FROM: _filled_from,
    Question.MEASUREMENTS: _measurements,
}
"""How each question is answered."""


def _put_artifact(service: Service, row: Row) -> Row:
    _catalog(service).put_artifact(_digest(row), checked(Manifest, row["manifest"], "manifest.json"))
    return {}


def _put_ref(service: Service, row: Row) -> Row:
    _catalog(service).put_ref(entry_of(row))
    return {}


def _drop_artifact(service: Service, row: Row) -> Row:
    _catalog(service).drop_artifact(_digest(row))
    return {}


def _check(service: Service, row: Row) -> Row:
    _catalog(service).check()
    return {"faults": []}


def _differing(service: Service, row: Row) -> Row:
    return {"faults": [str(fault) for fault in service.registry.index.audit()]}


def _rebuild(service: Service, row: Row) -> Row:
    rebuilt = service.registry.index.rebuild()
    return {"refs": rebuilt.refs, "artifacts": rebuilt.artifacts, "lost": rebuilt.lost}


def _log(service: Service, row: Row) -> Row:
    _catalog(service).log(event_of({**row, "id": 0}))
    return {}


def _events(service: Service, row: Row) -> Row:
    since = datetime.fromisoformat(row["since"]) if row.get("since") else None
    conditions = {key: row[key] for key in ("subject", "action", "by", "project", "before", "limit")}
    return {"events": [record_row(event) for event in _catalog(service).events(since=since, **conditions)]}


def _saw_source(service: Service, row: Row) -> Row:
    _catalog(service).saw_source(str(row["root"]), str(row["path"]))
    return {}


def _seen_sources(service: Service, row: Row) -> Row:
    return {"paths": _catalog(service).seen_sources(str(row["root"]))}


CHANGES: dict[Change, Callable[[Service, Row], Row]] = {
    Change.PUT_ARTIFACT: _put_artifact,
    Change.PUT_REF: _put_ref,
    Change.DROP_ARTIFACT: _drop_artifact,
    Change.CHECK: _check,
    Change.DIFFERING: _differing,
    Change.REBUILD: _rebuild,
    Change.LOG: _log,
    Change.EVENTS: _events,
    Change.SAW_SOURCE: _saw_source,
    Change.SEEN_SOURCES: _seen_sources,
}
"""How each change is made."""


def _digest(row: Row) -> Digest:
    try:
        return Digest(str(row["digest"]))
    except ValueError as error:
        raise UsageError(f"not a digest: {error}") from error
