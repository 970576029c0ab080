"""What can be asked of a catalog, and the one SQL statement that answers it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, or_, select
from sqlalchemy.orm import InstrumentedAttribute

from maskreg.catalog.columns import clean
from maskreg.catalog.models import ArtifactRow, RefRow
from maskreg.digest import Digest
from maskreg.errors import UsageError

Range = tuple[float, float]
"""Lowest and highest value, both included; infinities leave a side open."""

MAX_TEXT = 1000
"""Characters of a search text: databases bound the length of a pattern."""

_EQUAL: dict[str, InstrumentedAttribute[str]] = {
    "project": RefRow.project,
    "family": RefRow.family,
    "method": RefRow.method,
    "license": RefRow.license,
    "kind": ArtifactRow.kind,
}
_RANGES: dict[str, InstrumentedAttribute[float] | InstrumentedAttribute[float | None]] = {
    "density": ArtifactRow.density,
    "ffn_density": ArtifactRow.ffn_density,
    "ffn_share": ArtifactRow.ffn_share,
    "ffn_lift": ArtifactRow.ffn_lift,
    "rlvr_overlap": ArtifactRow.rlvr_overlap,
}
_SORTS: dict[str, InstrumentedAttribute[object]] = {
    "created": RefRow.at,
    "name": RefRow.name,
    "by": RefRow.by,
    **_EQUAL,
    **_RANGES,
    **{key: getattr(ArtifactRow, key) for key in ("size", "params", "nnz", "numel")},
}
SORT_KEYS = tuple(_SORTS)
"""What ``Query.sort`` may be."""

_DIGEST_PREFIX = re.compile(r"(?:sha256:)?([0-9a-f]{4,64})")


@dataclass(frozen=True)
class Query:
    """A search over live refs; every field that is set must match.

    Attributes:
        text: words, all of which occur in name, project, family or description (any case); a word of four or
            more hex digits also matches as the beginning of a digest.
        project, family, method, license, kind: equal to.
        density, ffn_density, ffn_share, ffn_lift, rlvr_overlap: within, both ends included; an artifact
            without that number never matches.
        sort: one of ``SORT_KEYS``; artifacts without that number come last either way.
        descending: largest, newest or last in the alphabet first.
        limit: at most so many.
    """

    text: str = ""
    project: str = ""
    family: str = ""
    method: str = ""
    license: str = ""
    density: Range | None = None
    ffn_density: Range | None = None
    ffn_share: Range | None = None
    ffn_lift: Range | None = None
    rlvr_overlap: Range | None = None
    kind: str = ""
    sort: str = "created"
    descending: bool = True
    limit: int | None = None


@dataclass(frozen=True)
class Found:
    """One live ref, with its card and what the index knows of its artifact.

    Attributes:
        at: when the tag was set (aware, UTC).
        density: moved / compared coordinates.
        ffn_density: the same within the FFN; None without an FFN.
        ffn_share: part of the moved coordinates that lies in the FFN.
        ffn_lift: ffn_share / the FFN's share of the compared coordinates.
        rlvr_overlap: latest recorded overlap with a reference mask, whose digest is ``rlvr_against``.
        params: elements of the source checkpoint.
        size: bytes of all objects.
    """

    project: str
    name: str
    tag: str
    digest: Digest
    kind: str
    family: str
    method: str
    license: str
    description: str
    rule: str
    exact: bool
    density: float
    ffn_density: float | None
    ffn_share: float | None
    ffn_lift: float | None
    rlvr_overlap: float | None
    rlvr_against: str | None
    nnz: int
    numel: int
    params: int
    size: int
    source_root: str
    source_hub: str
    target_root: str
    by: str
    at: datetime


_REF_FIELDS = ("project", "name", "tag", "family", "method", "license", "description", "by", "at")
_FIELDS = tuple(getattr(RefRow if name in _REF_FIELDS else ArtifactRow, name) for name in Found.__dataclass_fields__)


def statement(query: Query) -> Select[Any]:
    """The SELECT whose rows are the fields of ``Found``.

    Raises:
        UsageError: an unknown sort key, a range that is none, a negative limit, a text that is too long.
    """
    _check(query)
    order = _SORTS[query.sort]
    found = (
        select(*_FIELDS)
        .join(ArtifactRow, ArtifactRow.digest == RefRow.digest)
        .where(RefRow.deleted.is_(False), *_conditions(query))
        .order_by(order.desc().nulls_last() if query.descending else order.asc().nulls_last())
        # Ties would otherwise come in any order, another one each time.
        .order_by(RefRow.project, RefRow.name, RefRow.tag)
    )
    return found if query.limit is None else found.limit(query.limit)


def folded(*texts: str) -> str:
    """Texts as they are searched: case-folded, one a line (a word of a query never holds a newline)."""
    return "\n".join(clean(text).casefold() for text in texts)


def _conditions(query: Query) -> list[ColumnElement[bool]]:
    found = [_word(word) for word in clean(query.text).casefold().split()]
    found += [column == value for key, column in _EQUAL.items() if (value := getattr(query, key))]
    for key, column in _RANGES.items():
        bounds: Range | None = getattr(query, key)
        if bounds is not None:
            # NULL lies in no range, not even in an open one.
            found.append(and_(column.is_not(None), column.between(*bounds)))
    return found


def _word(word: str) -> ColumnElement[bool]:
    matches = RefRow.folded.contains(word, autoescape=True)
    prefix = _DIGEST_PREFIX.fullmatch(word)
    return or_(matches, RefRow.digest.startswith(f"sha256:{prefix[1]}")) if prefix else matches


def _check(query: Query) -> None:
    if query.sort not in _SORTS:
        raise UsageError(f"cannot sort by {query.sort!r}", hint=f"sort by one of: {', '.join(_SORTS)}")
    if query.limit is not None and query.limit < 0:
        raise UsageError(f"a limit of {query.limit} is negative")
    if len(query.text) > MAX_TEXT:
        raise UsageError(f"the search text has {len(query.text)} characters; the limit is {MAX_TEXT}")
    for key in _RANGES:
        bounds: Range | None = getattr(query, key)
        if bounds is not None and (math.isnan(bounds[0]) or math.isnan(bounds[1]) or bounds[0] > bounds[1]):
            raise UsageError(f"{key} {bounds[0]}..{bounds[1]} is no range", hint="write LOW..HIGH")
