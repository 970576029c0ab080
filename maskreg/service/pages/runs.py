"""The pages of runs: which there are, and of one what each version moved, and what its replicas have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from maskreg.artifact.manifest import Group
from maskreg.catalog import query as catalog
from maskreg.ref import Ref
from maskreg.reports.modules import CIVIDIS, in_order, scale
from maskreg.service.access import ProjectReader, Visitor
from maskreg.service.api.artifacts import Cursor
from maskreg.service.api.replies import position_cursor, position_of
from maskreg.service.context import Served
from maskreg.service.gateway.visibility import visible
from maskreg.service.pages.artifact import resolved
from maskreg.service.pages.listing import sparkline
from maskreg.service.pages.rendering import page
from maskreg.service.replicas import Replicas, furthest
from maskreg.words import human_bytes
from maskreg.workspace.verbs.runs import Version, recent_runs, versions

router = APIRouter(tags=["pages"], default_response_class=HTMLResponse)

DELTAS = 200
"""Deltas among which a page looks for runs."""

VERSIONS = 48
"""Versions of a run on a page."""

ROWS = 48
"""Rows of a map; more layers share some."""

_NAMED_ROWS = 12
_COLUMN, _ROWS = 16, (12, 28)  # width of a cell where there is room, and its least and greatest height, in pixels
_HEIGHT = 240


@router.get("/runs")
def runs(
    request: Request, service: Served, principal: Visitor, cursor: Annotated[Cursor, Query()] = ""
) -> HTMLResponse:
    """The runs of all projects that the reader can read, what was published last first."""
    query = visible(catalog.Query(limit=DELTAS), principal)
    query = replace(query, after=position_of(query, cursor)) if cursor else query
    found = recent_runs(query, **service.here)
    replicas: Replicas = request.app.state.replicas
    return page(
        request,
        principal,
        "runs.html.j2",
        runs=[(run, replicas.of(service, run.ref)) for run in found.names],
        more=None if found.after is None else position_cursor(query, found.after),
        cursor=cursor,
        furthest=furthest,
        ago=ago,
    )


@router.get("/runs/{project}/{reference}")
def run(
    request: Request,
    service: Served,
    project: str,
    reference: str,
    principal: ProjectReader,
    before: Annotated[int | None, Query(ge=2, lt=1 << 63)] = None,
) -> HTMLResponse:
    """Versions of a run, the newest first, and its replicas."""
    ref = replace(Ref.parse(f"{project}/{reference}"), digest=None)
    head = ref.pinned(resolved(service, ref)[0])
    shown = versions(ref, before=before, limit=VERSIONS, **service.here)
    replicas: Replicas = request.app.state.replicas
    links = [each.facts for each in reversed(shown.versions) if each.facts is not None and not each.is_anchor]
    return page(
        request,
        principal,
        "run.html.j2",
        ref=ref,
        head=head,
        before=before,
        older=shown.older,
        versions=[*pairwise((*shown.versions, None))],
        replicas=replicas.of(service, ref),
        map=map_of([*reversed(shown.versions)]),
        sizes=[link.size for link in links],
        shares=[link.moved.density for link in links],
        sparkline=sparkline,
        ago=ago,
        shades=len(CIVIDIS),
        human_bytes=human_bytes,
    )


def ago(at: datetime, now: datetime | None = None) -> str:
    """How long ago, or how long between two times: ``12 s``, ``5 min``, ``3 h`` or ``2 d``."""
    seconds = max(0, round(((now or datetime.now(UTC)) - at) / timedelta(seconds=1)))
    unit, size = next(
        (unit, size)
        for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
        if seconds >= size or size == 1
    )
    return f"{seconds // size:,} {unit}"


@dataclass(frozen=True)
class Map:
    """What moved in each layer by version, as a picture.

    Attributes:
        svg: a column for each version, a row for each layer.
        labels: of the rows; empty for one that is not named.
        low, high: the shares at the ends of the color scale.
    """

    svg: Markup
    labels: tuple[str, ...]
    low: float
    high: float


def map_of(shown: Sequence[Version]) -> Map | None:
    """The map of versions, the oldest first; None where no artifact that is there has layers."""
    columns = [{} if version.facts is None or version.is_anchor else version.facts.layers for version in shown]
    layers = in_order({layer for column in columns for layer in column})
    if not layers:
        return None
    stride = -(-len(layers) // ROWS)
    rows = [layers[at : at + stride] for at in range(0, len(layers), stride)]
    cells = {
        (x, y): Group(numel=sum(each.numel for each in groups), nnz=sum(each.nnz for each in groups))
        for x, column in enumerate(columns)
        for y, row in enumerate(rows)
        if (groups := [column[layer] for layer in row if layer in column])
    }
    low, high = scale(np.array([c.density for c in cells.values()]), np.array([c.numel for c in cells.values()]))
    paths: dict[str, str] = defaultdict(str)
    for (x, y), cell in cells.items():
        place = min(max((cell.density - low) / (high - low), 0.0), 1.0) if cell.nnz else 0.0
        paths[CIVIDIS[round(place * (len(CIVIDIS) - 1))]] += f"M{x} {y}h1v1h-1z"
    anchors = "".join(f"M{x}.5 0v{len(rows)}" for x, version in enumerate(shown) if version.is_anchor)
    drawn = Markup("").join(Markup('<path fill="{}" d="{}"/>').format(*path) for path in sorted(paths.items()))
    step = -(-len(rows) // _NAMED_ROWS)
    size = len(shown) * _COLUMN, len(rows) * min(max(_HEIGHT // len(rows), _ROWS[0]), _ROWS[1])
    svg = Markup(
        '<svg viewBox="0 0 {0} {1}" preserveAspectRatio="none" width="{2}" height="{3}" role="img" '
        'shape-rendering="crispEdges" aria-label="Share moved by layer and version">{4}'
        '<path class="anchor" d="{5}"/></svg>'
    ).format(len(shown), len(rows), *size, drawn, anchors)
    return Map(svg, tuple(row[0] if not at % step else "" for at, row in enumerate(rows)), low, high)
