"""The pages of runs: which there are, and of one what each version moved, and what its replicas have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from maskreg.catalog import query as catalog
from maskreg.ref import Ref
from maskreg.reports.modules import in_order
from maskreg.service.access import ProjectReader, Visitor
from maskreg.service.api.artifacts import Cursor
from maskreg.service.api.replies import position_cursor, position_of
from maskreg.service.context import Served
from maskreg.service.gateway.visibility import visible
from maskreg.service.pages.artifact import resolved
from maskreg.service.pages.listing import sparkline
from maskreg.service.pages.maps import Map, map_of
from maskreg.service.pages.rendering import page
from maskreg.service.replicas import Replicas, furthest
from maskreg.workspace.verbs.runs import Version, recent_runs, versions

router = APIRouter(tags=["pages"], default_response_class=HTMLResponse)

DELTAS = 200
"""Deltas among which a page looks for runs at a time."""

_PAGES = 5
"""How often it looks, at most, before it has found one."""

VERSIONS = 48
"""Versions of a run in the table of a page."""

DRAWN = (VERSIONS, 200, 1_000)
"""Numbers of versions that a page offers to draw, whose entries and manifests it reads for that."""


@router.get("/runs")
def runs(
    request: Request, service: Served, principal: Visitor, cursor: Annotated[Cursor, Query()] = ""
) -> HTMLResponse:
    """The runs of all projects that the reader can read, what was published last first."""
    query = visible(catalog.Query(limit=DELTAS), principal)
    query = replace(query, after=position_of(query, cursor)) if cursor else query
    looked, found = 1, recent_runs(query, **service.here)
    while not found.names and found.after is not None and looked < _PAGES:
        looked, found = looked + 1, recent_runs(replace(query, after=found.after), **service.here)
    replicas: Replicas = request.app.state.replicas
    return page(
        request,
        principal,
        "runs.html.j2",
        runs=[(run, replicas.of(service, run.ref)) for run in found.names],
        more=None if found.after is None else position_cursor(query, found.after),
        cursor=cursor,
        looked=looked * DELTAS,
        furthest=furthest,
    )


@router.get("/runs/{project}/{reference}")
def run(
    request: Request,
    service: Served,
    project: str,
    reference: str,
    principal: ProjectReader,
    *,
    before: Annotated[int | None, Query(ge=2, lt=1 << 63)] = None,
    last: Annotated[int, Query(ge=1, le=DRAWN[-1])] = VERSIONS,
) -> HTMLResponse:
    """Versions of a run, the newest first, and its replicas."""
    ref = replace(Ref.parse(f"{project}/{reference}"), digest=None)
    head = ref.pinned(resolved(service, ref)[0])
    replicas: Replicas = request.app.state.replicas
    drawn = versions(ref, before=before, limit=last, **service.here)
    shown = drawn.versions[:VERSIONS]
    links = [(each, each.facts) for each in reversed(drawn.versions) if each.facts is not None and not each.is_anchor]
    return page(
        request,
        principal,
        "run.html.j2",
        ref=ref,
        head=head,
        before=before,
        older=shown[-1].entry if len(drawn.versions) > VERSIONS else drawn.older,
        versions=[*pairwise((*shown, None))],
        replicas=replicas.of(service, ref),
        map=_map(shown[::-1]),
        last=last,
        choices=[each for each in DRAWN if each <= last or drawn.older],
        figures={
            "number": [link.number for link, _ in links],
            "step": [link.meta.get("step", "") for link, _ in links],
            "minute": [int(link.at.timestamp()) // 60 for link, _ in links],
            "moved": [float(f"{facts.moved.density:.3g}") for _, facts in links],
            "size": [facts.size for _, facts in links],
        },
        sparkline=sparkline,
    )


def _map(shown: Sequence[Version]) -> Map | None:
    columns = [{} if version.facts is None or version.is_anchor else version.facts.layers for version in shown]
    layers = in_order({layer for column in columns for layer in column})
    anchors = [at for at, version in enumerate(shown) if version.is_anchor]
    return map_of(columns, layers, "Share moved by layer and version", anchors)
