"""Artifacts: search, one artifact, and its verification."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model

from maskreg.catalog import query as catalog
from maskreg.digest import Digest
from maskreg.errors import UsageError
from maskreg.ref import Ref
from maskreg.registry.searching import MOST_ITEMS
from maskreg.service.access import Needs, SomeReader, Where
from maskreg.service.api import models
from maskreg.service.api.replies import position_cursor, position_of, reply
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.background import Indexer
from maskreg.service.context import Served, Service
from maskreg.service.gateway.verification import check_figures, latest_check
from maskreg.service.gateway.visibility import check_may_read, check_may_verify, may_read, visible
from maskreg.workspace.verbs.search import browse
from maskreg.workspace.verbs.show import summarize

router = APIRouter(tags=["artifacts"])

Writer = Annotated[Principal, Depends(Needs(Role.WRITER, Where.ANY, audited="request verification"))]
DigestPath = Annotated[str, Path(pattern="^sha256:[0-9a-f]{64}$", examples=[models.DIGEST])]
Limit = Annotated[int, Field(ge=1, le=MOST_ITEMS, description="Most items on a page.")]
Cursor = Annotated[str, Field(max_length=2048, description="`next` of the page before.")]

_RANGE = "Write `0.4..0.6`, `0.4..`, `..0.6` or one number; ends included."
_REFS = 100
_NAMES = TypeAdapter(list[models.Name])


class Filters(BaseModel):
    """What to search for; all that is given has to match."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(
        "",
        max_length=catalog.MAX_TEXT,
        description="Words that must each begin a word of the name, project, family or description, or the digest. A "
        "word with one of `/ : @ * ? [` is compared with the whole reference: `team/opd`, `team/*`, `opd:v1`.",
    )
    sort: str = Field(
        "created",
        max_length=40,
        description=f"One of {', '.join(catalog.COLUMN_OF_SORT)}; with `:asc` or `:desc`.",
        examples=["density:asc"],
    )
    limit: Limit = 50
    cursor: Cursor = ""

    def query(self) -> catalog.Query:
        """The query that this is."""
        key, _, order = self.sort.partition(":")
        if order not in ("", "asc", "desc"):
            raise UsageError(f"sort: {order!r} is neither asc nor desc")
        filters: dict[str, str | catalog.Range] = {}
        for name in (*catalog.EQUAL_KEYS, *catalog.PIN_KEYS, *catalog.RANGE_KEYS):
            if text := getattr(self, name):
                filters[name] = _range(name, text) if name in catalog.RANGE_KEYS else text
        query = catalog.Query(
            self.text, filters=filters, sort=key.replace("-", "_"), descending=order != "asc", limit=self.limit
        )
        query.check()
        return replace(query, after=position_of(query, self.cursor)) if self.cursor else query


def _range(name: str, text: str) -> catalog.Range:
    try:
        return catalog.parse_range(text)
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}") from error


def _filter(column: catalog.Column) -> tuple[Any, Any]:
    if column.by == "range":
        return str, Field("", max_length=100, description=f"{column.help} {_RANGE}")
    if column.values:
        return Literal["", *column.values], Field("", description=column.help)
    pattern = "^(sha256:[0-9a-f]{64})?$" if column.type is Digest else None
    return str, Field("", max_length=255, pattern=pattern, description=column.help)


if not TYPE_CHECKING:
    # One filter for each column that is searched by.
    Filters = create_model(
        "Filters",
        __base__=Filters,
        __doc__=Filters.__doc__,
        **{each.name: _filter(each) for each in catalog.COLUMNS.values() if each.by not in ("", "sorted")},
    )


@router.get("/artifacts", response_model=models.Names)
def search(filters: Annotated[Filters, Query()], request: Request, service: Served, principal: SomeReader) -> Response:
    """Search the tags of all projects that you can read.

    Pages stay right while others write: every tag is on one page, unless it moves in the order itself.
    """
    query = filters.query()
    page = browse(visible(query, principal), **service.here)
    names = models.Names(
        items=_NAMES.validate_python(page.names),
        next=None if page.after is None else position_cursor(query, page.after),
        left_out=[] if query.after else _left_out(request, principal),
    )
    return reply(request, names)


def _left_out(request: Request, principal: Principal) -> list[models.LeftOut]:
    indexer: Indexer = request.app.state.indexer
    return [
        models.LeftOut(ref=row.ref, digest=row.digest, reason=row.reason)
        for row in indexer.left_out
        if principal.role(Ref.parse(row.ref).project) >= Role.READER
    ]


@router.get("/artifacts/{digest}", response_model=models.Artifact)
def artifact(digest: DigestPath, request: Request, service: Served, principal: SomeReader) -> Response:
    """One artifact: its manifest, parts, size, tags that point to it, verification."""
    known = Digest(digest)
    query = visible(catalog.Query(digest=known, limit=_REFS), principal)
    page = browse(query, **service.here)
    if not page.names:
        # A readable tag pointed to it once, or the reader is an admin of the server.
        check_may_read(service.registry, principal, known)
    check_figures(service.registry, known)
    summary = summarize(known, **service.here)
    manifest = summary.manifest

    def overlap(recorded: object) -> models.Overlap | None:
        if recorded is None:
            return None
        shown = models.Overlap.model_validate(recorded)
        return shown if _may_know(service, principal, shown.against) else None

    shown = models.Artifact(
        digest=known,
        kind=manifest.kind,
        size=manifest.size,
        density=manifest.totals.density,
        present=list(summary.present),
        refs=[models.Pointer.model_validate(row) for row in page.names],
        more_refs=page.after is not None,
        rlvr_overlap=overlap(summary.rlvr_overlap),
        seed_overlap=overlap(summary.seed_overlap),
        verified=latest_check(service.registry, known),
        waits_for_verification=service.accounts.checks.is_pending(known),
        manifest=manifest.to_json(),
    )
    return reply(request, shown)


@router.post("/artifacts/{digest}/verify", status_code=202, response_class=Response)
def verify(digest: DigestPath, service: Served, principal: Writer) -> None:
    """Let the server hash and open an artifact again, soon; for writers of a project that names it."""
    known = Digest(digest)
    check_may_read(service.registry, principal, known)
    check_may_verify(service.registry, principal, known)
    service.accounts.checks.request(known, principal.name)


def _may_know(service: Service, principal: Principal, against: str) -> bool:
    try:
        digest = Digest(against)
    except ValueError:
        return True  # a baseline's text
    return may_read(service.registry, principal, digest)
