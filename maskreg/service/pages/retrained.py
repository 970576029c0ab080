"""Retraining runs of a mask, beside their controls: the same run with other coordinates, or with all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maskreg.catalog.query import Query, SearchResult
from maskreg.catalog.records import OVERLAP, RLVR_OVERLAP, SEED_OVERLAP
from maskreg.digest import Digest
from maskreg.service.auth.roles import Principal
from maskreg.service.context import Service
from maskreg.service.pages.reading import names
from maskreg.workspace.lineage import recipes
from maskreg.workspace.pairs import COMPARISON
from maskreg.workspace.show import Description

_CANDIDATES = 200
_METRICS = 6

_OTHERS = {OVERLAP, RLVR_OVERLAP, SEED_OVERLAP, COMPARISON}
"""Metrics that are about two masks, and not about a run."""

_ALL = "full"


@dataclass(frozen=True)
class Run:
    """A run.

    Attributes:
        name: its artifact.
        trained: which coordinates: the mask, or a control.
        is_control: whether it is one.
        setup: what decided its result.
        measured: the latest figure of each metric.
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
        metrics: what was measured of any of them.
    """

    runs: tuple[Run, ...]
    metrics: tuple[str, ...]


def runs_of(service: Service, principal: Principal, shown: Description) -> Runs:
    """The runs that retrained a mask or a control of it, as far as somebody may read them.

    Args:
        service: whose registry.
        principal: who reads.
        shown: the mask, or one of the runs.
    """
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
