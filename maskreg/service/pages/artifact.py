"""The page of an artifact: what it is, how to use it, where it moved, and what happened to its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse

from maskreg.artifact.manifest import Manifest
from maskreg.catalog.query import OVERLAP, RLVR_OVERLAP, SEED_OVERLAP, Query, SearchResult
from maskreg.digest import Digest
from maskreg.ref import Ref
from maskreg.reports.modules import Grid
from maskreg.reports.shades import CIVIDIS, scale, table
from maskreg.service.access import Needs
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.context import Served, Service
from maskreg.service.gateway.verification import latest_check
from maskreg.service.pages.drawing import lineage_picture
from maskreg.service.pages.reading import ancestors, described, history, names, names_of, signature
from maskreg.service.pages.rendering import link, page, remote_name
from maskreg.words import counted, percent, three_digits, times
from maskreg.workspace.lineage import recipes
from maskreg.workspace.log import LogEntry
from maskreg.workspace.recording import COMPARISON
from maskreg.workspace.show import Description

_TAGS = 100
"""Tags of a name that are shown, the newest first."""

router = APIRouter(tags=["pages"], default_response_class=HTMLResponse)


@dataclass(frozen=True)
class Change:
    """One line of a tag's history.

    Attributes:
        before: what the tag pointed to until then; None where it pointed to nothing.
    """

    entry: LogEntry
    before: Digest | None


@router.get("/p/{project}/{reference}")
def artifact(
    request: Request,
    service: Served,
    project: str,
    reference: str,
    principal: Annotated[Principal, Depends(Needs(Role.READER))],
) -> HTMLResponse:
    """What a name points to: ``name``, ``name:tag``, or either with ``@sha256:`` and a digest that it once had."""
    ref = Ref.parse(f"{project}/{reference}")
    shown = described(service, ref)
    entries = history(service, ref)
    lineage = ancestors(service, ref)
    known = names_of(service, principal, (ancestor.digest for ancestor in lineage.ancestors))
    return page(
        request,
        principal,
        "artifact.html.j2",
        ref=ref,
        shown=shown,
        manifest=shown.manifest,
        sentence=sentence(shown.manifest),
        commands=commands(ref, shown.manifest, str(request.base_url).rstrip("/"), remote_name(request)),
        heat=heat_map(shown.grid()) if shown.manifest.totals.numel else None,
        picture=lineage_picture(lineage, known, ref, link),
        left_out=len(lineage.left_out),
        versions=names(service, principal, Query(text=f"{project}/{ref.name}:*", project=project, limit=_TAGS)),
        changes=[
            Change(now, before.digest if before else None)
            for before, now in pairwise((None, *entries))
            if now is not None
        ][::-1],
        head=entries[-1],
        runs=runs_of(service, principal, shown),
        signature=signature(service, ref),
        check=latest_check(service.registry, shown.digest),
        waits=service.accounts.checks.is_pending(shown.digest),
    )


def sentence(manifest: Manifest) -> str:
    """What an artifact is, in one or two sentences."""
    totals, ffn = manifest.totals, manifest.totals.ffn
    if not totals.numel:
        return "Figures about another artifact."
    of = f"{percent(totals.density)} of {counted(totals.numel, 'coordinate')}"
    is_drawn = manifest.kind == "baseline"
    text = f"{of}, drawn to compare with." if is_drawn else f"{of} moved under the rule {manifest.rule}."
    if ffn.mask_share is not None and ffn.mask_lift is not None:
        text += f" {percent(ffn.mask_share)} of these lie in the FFN: {times(ffn.mask_lift)} its share of coordinates."
    return text


def commands(ref: Ref, manifest: Manifest, base: str, remote: str) -> Mapping[str, str]:
    """Lines to copy, for the command line and for Python."""
    pulled = f"maskreg pull {ref} --remote {remote}"
    python = f'import maskreg\n\nartifact = maskreg.pull("{ref}", remote="{remote}").artifact\n'
    last = 'maskreg.apply(artifact, out="patched")' if manifest.kind == "delta" else "print(artifact.manifest.kind)"
    return {
        "shell": f"{pulled} | maskreg apply" if manifest.kind == "delta" else pulled,
        "setup": f"maskreg remote add {remote} {base}",
        "verify": f"maskreg verify {ref} --remote {remote}",
        "python": python + last,
    }


@dataclass(frozen=True)
class Cell:
    """Density of a module in a layer.

    Attributes:
        text: in percent; empty without a tensor.
        shade: number of its color; None where nothing moved, or without a tensor.
    """

    text: str
    shade: int | None


@dataclass(frozen=True)
class HeatMap:
    """A grid of densities.

    Attributes:
        rows: for each layer its label and its cells.
    """

    modules: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    low: float
    high: float
    shades: int = len(CIVIDIS)


def heat_map(grid: Grid) -> HeatMap | None:
    """The heat map of a mask; None for one without layers."""
    if not grid.cells:
        return None
    low, high = scale(*table(grid))

    def cell(layer: str, module: str) -> Cell:
        group = grid.cells.get((layer, module))
        if group is None:
            return Cell("", None)
        share = min(max((group.density - low) / (high - low), 0.0), 1.0)
        number = round(share * (len(CIVIDIS) - 1)) if group.nnz else None
        return Cell(three_digits(100 * group.density), number)

    rows = tuple((layer, tuple(cell(layer, module) for module in grid.modules)) for layer in grid.layers)
    return HeatMap(grid.modules, rows, low, high)


_CANDIDATES = 200
_METRICS = 6

_OTHERS = {OVERLAP, RLVR_OVERLAP, SEED_OVERLAP, COMPARISON}
"""Metrics that are about two masks, and not about a run."""

_ALL = "full"


@dataclass(frozen=True)
class Run:
    """A run.

    Attributes:
        trained: which coordinates: the mask, or a control.
    """

    name: SearchResult
    trained: str
    is_control: bool
    setup: Mapping[str, Any]
    measured: Mapping[str, float]


@dataclass(frozen=True)
class Runs:
    """Runs that began with one mask.

    Attributes:
        runs: those that trained the mask first.
    """

    runs: tuple[Run, ...]
    metrics: tuple[str, ...]


def runs_of(service: Service, principal: Principal, shown: Description) -> Runs:
    """The runs that retrained a mask or a control of it, as far as the reader can read them."""
    own = shown.manifest.recipe or {}
    mask = own.get("parent", "") if own.get("kind") == "retrain" else str(shown.digest)
    entries = names(service, principal, Query(source_root=shown.manifest.source.root, limit=_CANDIDATES)).names
    by_digest = {entry.digest: entry for entry in entries}
    known = recipes(by_digest, remote=service.remote, workspace=service.workspace)
    chosen = {
        digest: recipe
        for digest, recipe in known.items()
        if recipe.get("kind") == "retrain" and mask and recipe.get("parent") == mask
    }
    runs = [_run(service, by_digest[digest], recipe) for digest, recipe in chosen.items()]
    runs.sort(key=lambda run: (run.is_control, run.trained, str(run.name.ref)))
    metrics = sorted({metric for run in runs for metric in run.measured})[:_METRICS]
    return Runs(tuple(runs), tuple(metrics))


def _run(service: Service, name: SearchResult, recipe: Mapping[str, Any]) -> Run:
    control = recipe.get("control") or {}
    kind = str(control.get("kind", "")) if isinstance(control, dict) else ""
    trained = "the mask" if not kind else "all coordinates" if kind == _ALL else kind
    return Run(name, trained, bool(kind), recipe, _measured(service, name.digest))


def _measured(service: Service, digest: Digest) -> Mapping[str, float]:
    catalog = service.registry.catalog
    rows = catalog.measurements(digest) if catalog is not None else []
    return {row.metric: row.value for row in rows if row.metric not in _OTHERS and not row.by_group}
