"""The first page: the names of a server or of a project, with filters that say how many names each would leave."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup
from pydantic import Field, ValidationError

from maskreg.catalog import query as catalog
from maskreg.catalog.query import BARS, EQUAL_KEYS, Histogram
from maskreg.errors import UsageError
from maskreg.glossary import ENTRIES
from maskreg.ref import Ref
from maskreg.service.access import ProjectReader, Visitor
from maskreg.service.api.artifacts import Filters
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.context import Served, Service
from maskreg.service.gateway.visibility import visible
from maskreg.service.pages.rendering import page
from maskreg.service.problems import sentence
from maskreg.words import counted, percent, times
from maskreg.workspace.lineage import layer_densities
from maskreg.workspace.verbs.search import Page, browse, counts

router = APIRouter(tags=["pages"], default_response_class=HTMLResponse)

RANGES = {"density": percent, "ffn_lift": times, "rlvr_overlap": times}
"""Filters by a range that have a field and a histogram, and how their numbers are written."""

LABELS = {
    "text": "Search",
    "project": "Project",
    "family": "Family",
    "method": "Method",
    "kind": "Kind",
    "license": "License",
    "signed": "Signed",
    "density": "Density",
    "ffn_lift": "FFN lift",
    "rlvr_overlap": "RLVR overlap",
}
"""What the page calls filters, which are parameters of the API's search."""

MOST_PAGES = 2_000
"""Pages that can be turned to: a database reads what it skips."""

_TALL = 40
"""Height of a sparkline or a histogram, in units of its own."""

_STEPS = 48
"""Maximum number of steps of a sparkline."""


class Listed(Filters):
    """What to list: a search of the API, by the number of a page instead of a cursor."""

    page: int = Field(1, ge=1, le=MOST_PAGES)


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
    # A form sends every field, also empty ones. The address of a project says its name.
    known = Listed.model_fields.keys() - {"cursor", "project" if project else ""}
    given = {name: text for name, text in request.query_params.items() if text and name in known}
    filters, query, faults = Listed.model_validate({}), catalog.Query(), dict[str, str]()
    results, counted_names = Page((), None), None
    try:
        filters = Listed.model_validate(given)
        query = replace(filters.query(), offset=(filters.page - 1) * filters.limit)
        query = replace(query, filters={**query.filters, **({"project": project} if project else {})})
        results = names(service, principal, query)
        counted_names = counts(visible(query, principal), (*EQUAL_KEYS, *RANGES), **service.here)
    except (ValidationError, UsageError) as error:
        faults = _faults(error)

    def address(**changes: object) -> str:
        fields = {name: text for name, text in {**given, "page": "", **changes}.items() if text}
        return f"{request.url.path}?{urlencode(fields)}" if fields else request.url.path

    digests = [row.digest for row in results.names]
    sparks = layer_densities(digests, **service.here)
    return page(
        request,
        principal,
        "list.html.j2",
        status=422 if faults else 200,
        project=project,
        filters=filters,
        query=query,
        narrowing={name: text for name, text in given.items() if name not in ("sort", "limit", "page")},
        address_of=address,
        given=given,
        faults=faults,
        entries=results.names,
        more=results.after is not None and filters.page < MOST_PAGES,
        counts=counted_names,
        facets=[key for key in EQUAL_KEYS if key in known],
        ranges=RANGES,
        histogram=histogram,
        left_out=[row for row in request.app.state.indexer.left_out if _is_readable(row.ref, principal, project)],
        highest=max((max(each) for each in [*sparks.values(), *((row.density,) for row in results.names)]), default=0),
        sparks=sparks,
        sparkline=sparkline,
        labels=LABELS,
    )


def _faults(error: ValidationError | UsageError) -> dict[str, str]:
    """What is wrong, by the field of the form."""
    if isinstance(error, UsageError):
        field = error.message.partition(":")[0]
        return {field if field in LABELS else "text": error.message}
    rows = {str(row["loc"][0]): row for row in error.errors()}
    return {field: sentence({**row, "loc": ("query", LABELS.get(field, field))}) for field, row in rows.items()}


def names(service: Service, principal: Principal, query: catalog.Query) -> Page:
    """The names that match a query and that a reader can read."""
    return browse(visible(query, principal), **service.here)


def histogram(
    key: str, counts: Histogram, chosen: tuple[float, float], text: Callable[[float], str], address: Callable[..., str]
) -> Markup:
    """Names by a number, as bars that each lead to the range below it; empty where all numbers are the same."""
    width = (counts.high - counts.low) / BARS
    if not width:
        return Markup()
    digits = max(0, 2 - math.floor(math.log10(width)))
    ends = [counts.low + width * bar for bar in range(BARS + 1)]
    # The outer ends stay open: rounded, they could leave out what is at them.
    typed = ["", *(f"{end:.{digits}f}" for end in ends[1:-1]), ""]
    shown = list(map(text, ends))
    bars = [
        Markup(
            '<a href="{}" tabindex="-1"{}><title>{} to {}: {}</title><path d="M{} 0h1v{}h-1z"/>'
            '<path d="M{} {}v-{}h.9v{}z"/></a>'
        ).format(
            address(**{key: f"{typed[bar]}..{typed[bar + 1]}"}),
            Markup(' class="out"') if not chosen[0] <= (ends[bar] + ends[bar + 1]) / 2 <= chosen[1] else "",
            *shown[bar : bar + 2],
            counted(number, "name"),
            *(bar, _TALL, bar, _TALL),
            *[max(2, round(_TALL * number / max(counts.bars)))] * 2,
        )
        for bar, number in enumerate(counts.bars)
        if number
    ]
    # The field below, and sliders where there is a script, say the same to a keyboard and to a screen reader.
    return Markup(
        '<svg class="histogram" viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
        '<div class="sliders"></div>'
        '<span class="ends" data-typed="{}" data-shown="{}"><span>{}</span><span>{}</span></span>'
    ).format(BARS, _TALL, Markup().join(bars), "|".join(typed), "|".join(shown), shown[0], shown[-1])


def sparkline(values: Sequence[float], label: str, highest: float, steps: int = _STEPS, tall: int = _TALL) -> Markup:
    """Values as a row of steps from zero to the highest.

    ``steps``: at most, beyond which neighbors are averaged. ``tall``: units of the height.
    """
    stride = -(-len(values) // steps)
    groups = [values[at : at + stride] for at in range(0, len(values), stride)]
    means = [sum(group) / len(group) for group in groups]
    # Whole numbers, a step a unit wide, and one path for line and area: forty of these are on the first page.
    line = "".join(f"V{round(tall * (1 - mean / (highest or 1.0)))}h1" for mean in means)
    return Markup(
        '<svg class="spark" viewBox="0 0 {0} {1}" preserveAspectRatio="none" width="96" height="20" role="img" '
        'aria-label="{2}"><path d="M0 {1}{3}V{1}"/></svg>'
    ).format(len(means), tall, label, line)


def _is_readable(name: str, principal: Principal, project: str) -> bool:
    ref = Ref.parse(name)
    return principal.role(ref.project) >= Role.READER and project in ("", ref.project)
