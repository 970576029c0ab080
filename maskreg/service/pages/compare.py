"""The page that compares masks: their overlap beside every null, by layer and module."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from string import ascii_uppercase
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from maskreg.analysis.comparison import PairOverlap
from maskreg.analysis.evidence import GLOBAL, MATCHED, PER_TENSOR, OverlapFigures
from maskreg.digest import Digest
from maskreg.errors import LimitError, TryAgainError, UsageError
from maskreg.ref import Ref
from maskreg.reports.modules import in_order
from maskreg.reports.words import heading_of_pair, mark_of_pair
from maskreg.service.access import Visitor
from maskreg.service.auth.roles import Role, check_role
from maskreg.service.context import Served, Service
from maskreg.service.gateway.visibility import Remembered
from maskreg.service.pages.artifact import resolved
from maskreg.service.pages.rendering import page
from maskreg.words import counted
from maskreg.workspace.verbs.compare import MaskComparison
from maskreg.workspace.verbs.compare import compare as compare_masks

router = APIRouter(tags=["pages"], default_response_class=HTMLResponse)

_PIN = re.compile("@sha256:[0-9a-f]{64}")

_FINEST = (MATCHED, PER_TENSOR, GLOBAL)

MOST_MASKS = 8

_TURNS = threading.BoundedSemaphore(2)
"""Comparisons that one process works on at a time; each uses several threads."""

_KEPT: Remembered[tuple[tuple[str, Digest | None], ...], MaskComparison] = Remembered(32)
"""By names and digests: artifacts never change, so what was compared once holds for ever."""


@router.get("/compare")
def compare(
    request: Request,
    service: Served,
    principal: Visitor,
    ref: Annotated[list[str] | None, Query(max_length=64)] = None,
) -> HTMLResponse:
    """The overlap of two to eight masks; without them, a form to name them."""
    texts = [text.strip() for text in ref or () if text.strip()]
    if len(texts) < 2:
        return page(request, principal, "choose.html.j2", texts=texts, most=MOST_MASKS)
    if len(texts) > MOST_MASKS:
        raise UsageError(f"{len(texts)} masks; a page compares at most {MOST_MASKS}")
    refs = [Ref.parse(text) for text in texts]
    for name in refs:
        check_role(principal, name.project, Role.READER)
    pinned = [resolved(service, name) for name in refs]
    result = _compared(service, pinned)
    letters = ascii_uppercase[: len(refs)]
    pairs = dict(zip(combinations(letters, 2), result.pairs, strict=True))
    return page(
        request,
        principal,
        "compare.html.j2",
        masks=list(zip(letters, refs, result.masks, strict=True)),
        pairs=pairs,
        consensus=result.consensus,
        mark_of=mark_of_pair,
        heading_of=heading_of_pair,
        unpinned=unpinned,
        finest=finest,
        bars=bars,
        groups=groups,
        notes=list(dict.fromkeys(unpinned(note) for pair in result.pairs for note in pair.notes)),
    )


def _compared(service: Service, refs: Sequence[Ref]) -> MaskComparison:
    key = tuple((str(ref), ref.digest) for ref in refs)
    if (kept := _KEPT.get(key)) is not None:
        return kept
    total = sum(service.workspace.find(ref, service.remote).manifest.totals.numel for ref in refs)
    if total > service.most_compared:
        raise LimitError(
            f"the masks have {counted(total, 'coordinate')}; this server compares at most {service.most_compared:,}",
            compared=" ".join(str(replace(ref, digest=None)) for ref in refs),
        )
    if not _TURNS.acquire(blocking=False):
        raise TryAgainError("the server compares other masks", hint="load the page again in a few seconds")
    try:
        result = compare_masks(*refs, allow_different=True, remote=service.remote, workspace=service.workspace)
    finally:
        _TURNS.release()
    return _KEPT.put(key, result)


def unpinned(text: str) -> str:
    """A sentence about masks without their digests."""
    return _PIN.sub("", text)


def finest(figures: OverlapFigures) -> tuple[str, float | None]:
    """The finest random null that is defined, and observed over expected."""
    null = next((name for name in _FINEST if figures.nulls[name].expected is not None), GLOBAL)
    return null, figures.nulls[null].ratio


def bars(figures: OverlapFigures) -> Sequence[tuple[str, float, str]]:
    """Null, share of the smaller mask, and kind, of each null that is defined; what was observed comes first."""
    most = figures.counts.most
    if not most:
        return ()
    expected = [(null, over.expected) for null, over in figures.nulls.items() if over.expected is not None]
    return (
        ("observed", figures.counts.both / most, "observed"),
        *((null, value / most, "null" if "rounding" in null else "neutral") for null, value in expected),
    )


def groups(pair: PairOverlap) -> Mapping[str, Mapping[str, OverlapFigures]]:
    """Figures by layer and by module, in the order of the model."""
    layers = {layer: pair.layers[layer] for layer in in_order(pair.layers)}
    return {"layer": layers, "module": pair.modules}
