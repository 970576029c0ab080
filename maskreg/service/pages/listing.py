"""The first page: the names of a server or of a project, with filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup
from pydantic import ValidationError

from maskreg.catalog import query as catalog
from maskreg.catalog.query import SearchResult
from maskreg.errors import UsageError
from maskreg.glossary import ENTRIES
from maskreg.ref import Ref
from maskreg.service.access import ProjectReader, Visitor
from maskreg.service.api.artifacts import Filters
from maskreg.service.api.replies import position_cursor
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.context import Served, Service
from maskreg.service.gateway.visibility import visible
from maskreg.service.pages.rendering import page
from maskreg.service.problems import sentence
from maskreg.words import percent
from maskreg.workspace.lineage import layer_densities
from maskreg.workspace.verbs.search import Page, browse

router = APIRouter(tags=["pages"], default_response_class=HTMLResponse)

SORTS = {
    "created": "newest first",
    "name:asc": "name",
    "density": "density",
    "ffn_lift": "FFN lift",
    "rlvr_overlap": "overlap with RLVR",
    "size": "size",
}
"""Sort keys, and what the page calls them."""

KINDS = ("mask", "delta", "baseline", "analysis")

LIMITS = (50, 200, 1000)
"""Names on a page."""

LABELS = {
    "text": "Search",
    "family": "Family",
    "method": "Method",
    "kind": "Kind",
    "density": "Density",
    "ffn_lift": "FFN lift",
    "rlvr_overlap": "RLVR overlap",
    "sort": "Order",
    "limit": "Names on a page",
}
"""What the form calls its fields, which are parameters of the API's search."""

_TALL = 40
"""Height of a sparkline, in units of its own."""

_STEPS = 48
"""Maximum number of steps of a sparkline; more layers are averaged."""


@router.get("/")
def all_names(request: Request, service: Served, principal: Visitor) -> HTMLResponse:
    """The names of all projects that the reader can read."""
    return _list(request, service, principal, "")


@router.get("/p/{project}")
def names_of_project(request: Request, service: Served, project: str, principal: ProjectReader) -> HTMLResponse:
    """The names of one project."""
    return _list(request, service, principal, project)


@router.get("/glossary")
def glossary(request: Request, principal: Visitor) -> HTMLResponse:
    """Every word and figure with its one meaning."""
    return page(request, principal, "glossary.html.j2", entries=ENTRIES)


def _list(request: Request, service: Service, principal: Principal, project: str) -> HTMLResponse:
    # A form sends every field, also empty ones.
    given = {name: text for name, text in request.query_params.items() if text and name in Filters.model_fields}
    filters, faults, more = Filters.model_validate({}), dict[str, str](), None
    entries: tuple[SearchResult, ...] = ()
    try:
        filters = Filters.model_validate(given)
        query = filters.query()
        if project:
            query = replace(query, filters={**query.filters, "project": project})
        results = names(service, principal, query)
        entries, more = results.names, None if results.after is None else position_cursor(query, results.after)
    except ValidationError as error:
        # The form keeps what was typed, and says of each field what is wrong with it.
        for row in error.errors():
            field = str(row["loc"][0])
            faults[field] = sentence({**row, "loc": ("query", LABELS.get(field, field))})
    except UsageError as error:
        field = error.message.partition(":")[0]
        faults[field if field in LABELS else "text"] = error.message
    given_or_default = {name: field.default for name, field in Filters.model_fields.items()} | given
    narrowing = filters.model_dump(exclude_defaults=True, exclude={"sort", "limit", "cursor"})

    def address(**changes: str) -> str:
        fields = {**filters.model_dump(exclude_defaults=True, exclude={"cursor"}), **changes}
        return f"{request.url.path}?{urlencode(fields)}" if fields else request.url.path

    return page(
        request,
        principal,
        "list.html.j2",
        status=422 if faults else 200,
        project=project,
        filters=filters,
        narrowing=narrowing,
        address_of=address,
        given=given_or_default,
        faults=faults,
        entries=entries,
        more=more,
        left_out=[row for row in request.app.state.follower.left_out if _is_readable(row.ref, principal, project)],
        sparks=layer_densities([entry.digest for entry in entries], remote=service.remote, workspace=service.workspace),
        sparkline=sparkline,
        sorts=SORTS,
        kinds=KINDS,
        limits=LIMITS,
        labels=LABELS,
    )


def names(service: Service, principal: Principal, query: catalog.Query) -> Page:
    """The names that match a query and that a reader can read."""
    return browse(visible(query, principal), remote=service.remote, workspace=service.workspace)


def sparkline(
    values: Sequence[float], name: str = "Density by layer", text: Callable[[float], str] = percent
) -> Markup:
    """Values, by default density by layer, as a row of steps from zero to the highest."""
    label = f"{name}: {text(min(values))} to {text(max(values))}"
    stride = -(-len(values) // _STEPS)
    groups = [values[at : at + stride] for at in range(0, len(values), stride)]
    means = [sum(group) / len(group) for group in groups]
    top = max(means) or 1.0
    # Whole numbers, a step a unit wide, and one path for line and area: forty of these are on the first page.
    line = "".join(f"V{round(_TALL * (1 - mean / top))}h1" for mean in means)
    return Markup(
        '<svg class="spark" viewBox="0 0 {0} {1}" preserveAspectRatio="none" width="96" height="20" role="img" '
        'aria-label="{2}"><path d="M0 {1}{3}V{1}"/></svg>'
    ).format(len(means), _TALL, label, line)


def _is_readable(name: str, principal: Principal, project: str) -> bool:
    ref = Ref.parse(name)
    return principal.role(ref.project) >= Role.READER and project in ("", ref.project)
