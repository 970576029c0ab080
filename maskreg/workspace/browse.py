"""Browse: search a large registry page by page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from maskreg.catalog.query import Position, Query, SearchResult
from maskreg.errors import UsageError
from maskreg.workspace.patterns import narrowed, split
from maskreg.workspace.workspace import Workspace, opened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from maskreg.registry import Registry
    from maskreg.workspace.patterns import Pattern

_BATCH = 500
_BATCHES = 8


@dataclass(frozen=True)
class Page:
    """Some results of a search, in its order.

    Attributes:
        names: the results; may be fewer than the limit, or none, while there are more.
        after: where the next page begins; None when this is the last.
    """

    names: tuple[SearchResult, ...]
    after: Position | None


def browse(query: Query, *, remote: str | None = None, workspace: Workspace | None = None) -> Page:
    """The results of a search behind a position, at most as many as the query's limit.

    A page costs no more in a large registry than in a small one, because only the catalog is asked. Every result is on
    one page, whatever is added or removed in the meantime, unless it moves in the order itself.

    Args:
        query: what to look for. Its text may hold patterns of references, as for :func:`search`. Its limit is the size
            of a page.
        remote: browse this remote instead of the local registry.
        workspace: by default what the settings say.

    Raises:
        UsageError: the query has no limit or is malformed.
        ConfigError: there is no such remote.
        UnavailableError: the remote does not answer, or offline is set.
    """
    limit = query.limit
    if not limit:
        raise UsageError("a page needs a limit of 1 or more")
    patterns, words = split(query.text)
    query = narrowed(replace(query, text=words), patterns)
    with opened(workspace) as space:
        registry = space.registry(remote)
        return _filtered(registry, query, limit, patterns) if patterns else _page(registry, query, limit)


def _page(registry: Registry, query: Query, limit: int) -> Page:
    # One more says whether there is another page.
    rows = registry.page(replace(query, limit=limit + 1))
    after = rows[limit - 1].position(query.sort) if len(rows) > limit else None
    return Page(tuple(rows[:limit]), after)


def _filtered(registry: Registry, query: Query, limit: int, patterns: Sequence[Pattern]) -> Page:
    # The database does not know patterns. So much is read at most, so that no request takes for ever.
    names: list[SearchResult] = []
    for _ in range(_BATCHES):
        page = _page(registry, query, _BATCH)
        for row in page.names:
            if all(pattern.matches(row.ref, row.digest) for pattern in patterns):
                names.append(row)
                if len(names) == limit:
                    is_last = row == page.names[-1] and page.after is None
                    return Page(tuple(names), None if is_last else row.position(query.sort))
        query = replace(query, after=page.after)
        if page.after is None:
            break
    return Page(tuple(names), query.after)
