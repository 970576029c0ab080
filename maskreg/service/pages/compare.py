"""The page that compares masks: a headline, the null ladder or every pair as a heat map, and figures."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from string import ascii_uppercase
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from maskreg.analysis.comparison import PairOverlap
from maskreg.analysis.evidence import GLOBAL, MATCHED, NO_SOURCE, PER_TENSOR, OverlapFigures
from maskreg.analysis.pairwise import PairMatrix
from maskreg.analysis.verdict import with_source
from maskreg.digest import Digest
from maskreg.errors import LimitError, TryAgainError, UsageError, WrongCheckpointError
from maskreg.ref import Ref
from maskreg.reports.ladder import NOTE, ladder
from maskreg.reports.modules import in_order, shade
from maskreg.reports.words import heading_of_pair, mark_of_pair
from maskreg.service.access import Visitor
from maskreg.service.auth.roles import Role, check_role
from maskreg.service.context import MOST_COORDINATES, Served, Service
from maskreg.service.gateway.visibility import Remembered
from maskreg.service.pages.artifact import resolved
from maskreg.service.pages.rendering import page
from maskreg.words import counted
from maskreg.workspace.verbs.compare import MaskComparison
from maskreg.workspace.verbs.compare import compare as compare_masks

router = APIRouter(tags=["pages"], default_response_class=HTMLResponse)

_PIN = re.compile("@sha256:[0-9a-f]{64}")

_FINEST = (MATCHED, PER_TENSOR, GLOBAL)

Colors = Literal["zero", "all", "shown"]
"""What the colors of a matrix span: both sides of zero alike, all that headroom can be, or what is shown."""

MOST_MASKS = 8

MOST_TABLES = 1 << 14
"""Tensors of masks and of pairs of masks that are counted while a client waits: about ten seconds on a CPU."""

_TURNS = threading.BoundedSemaphore(2)
"""Comparisons that one process works on at a time; each uses several threads."""

KEPT: Remembered[tuple[tuple[str, Digest | None], ...], MaskComparison] = Remembered(64)
"""By names and digests: artifacts never change, so what was compared once holds for ever."""


@router.get("/compare")
def compare(
    request: Request,
    service: Served,
    principal: Visitor,
    ref: Annotated[list[str] | None, Query(max_length=64)] = None,
    colors: Colors = "zero",
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
    pinned = [name.pinned(resolved(service, name)[0]) for name in refs]
    result = _compared(service, pinned)
    notes = dict.fromkeys(unpinned(note) for pair in result.pairs for note in pair.notes)
    # Beside a matrix, the table of answers says them.
    related = {unpinned(text) for pair in result.pairs for text in pair.relations if result.matrix}
    letters = ascii_uppercase[: len(refs)]
    return page(
        request,
        principal,
        "compare.html.j2",
        masks=list(zip(letters, refs, result.masks, strict=True)),
        pair=result.pairs[0],
        matrix=result.matrix,
        shades_of=shades_of,
        colors=colors,
        answers={} if result.matrix is None else {pair.masks: pair for pair in result.matrix.pairs},
        consensus=result.consensus,
        intersections=result.intersections,
        mark_of=mark_of_pair,
        heading_of=heading_of_pair,
        with_source=with_source(result.pairs[0].whole),
        ladder=ladder,
        ladder_note=NOTE,
        unpinned=unpinned,
        finest=finest,
        groups=groups,
        notes=[note for note in notes if not note.endswith(NO_SOURCE) and note not in related],
    )


def _compared(service: Service, refs: Sequence[Ref]) -> MaskComparison:
    key = tuple((str(ref), ref.digest) for ref in refs)
    if (kept := KEPT.get(key)) is not None:
        return kept
    manifests = [service.workspace.find(ref, service.remote).manifest for ref in refs]
    total, tensors = sum(each.totals.numel for each in manifests), max(each.source.tensors for each in manifests)
    if total > MOST_COORDINATES or tensors * math.comb(len(refs) + 1, 2) > MOST_TABLES:
        raise LimitError(
            f"masks of {counted(total, 'coordinate')} in {counted(tensors, 'tensor')} take too long to compare here",
            compared=" ".join(str(replace(ref, digest=None)) for ref in refs),
        )
    if not _TURNS.acquire(blocking=False):
        raise TryAgainError("the server compares other masks", hint="load the page again in a few seconds")
    try:
        result = _beside_source(service, refs)
    finally:
        _TURNS.release()
    return KEPT.put(key, result)


def _beside_source(service: Service, refs: Sequence[Ref]) -> MaskComparison:
    """Compare beside the source, where the operator offers it to jobs or this machine has seen it."""
    how: dict[str, Any] = {"allow_different": True, "groups": ("layer", "module"), **service.here}
    for path in service.jobs.offered().values() if service.jobs else ():
        with suppress(WrongCheckpointError):
            return compare_masks(*refs, source=path, **how)
    return compare_masks(*refs, **how)


def unpinned(text: str) -> str:
    """A sentence about masks without their digests."""
    return _PIN.sub("", text)


def finest(figures: OverlapFigures) -> tuple[str, float | None]:
    """The finest random null that is defined, and observed over expected."""
    null = next((name for name in _FINEST if figures.nulls[name].expected is not None), GLOBAL)
    return null, figures.nulls[null].ratio


def shades_of(matrix: PairMatrix, colors: Colors) -> tuple[Mapping[tuple[int, int], int], tuple[float, float]]:
    """Colors of the pairs with an answer, and the headrooms of the first color and of the last."""
    marks = matrix.answered
    known = {pair.masks: pair.headroom for pair in matrix.pairs if marks[pair.masks] and pair.headroom is not None}
    end = max([1e-3, *map(abs, known.values())])
    shown = min(known.values(), default=0.0), max(known.values(), default=0.0)
    low, high = {"zero": (-end, end), "all": (-1.0, 1.0), "shown": shown}[colors]
    return {masks: shade(value, low, high) for masks, value in known.items()}, (low, high)


def groups(pair: PairOverlap) -> Mapping[str, Mapping[str, OverlapFigures]]:
    """Figures by layer and by module, in the order of the model."""
    layers = {layer: pair.layers[layer] for layer in in_order(pair.layers)}
    return {"layer": layers, "module": pair.modules}
