"""A registry behind a server, searched by the server's own index: ``GET /artifacts``, page by page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from maskreg.catalog.query import COLUMNS, Query, SearchResult
from maskreg.catalog.records import RLVR_OVERLAP, SEED_OVERLAP, Measurement
from maskreg.digest import Digest
from maskreg.document import checked
from maskreg.errors import DataError
from maskreg.ref import Ref
from maskreg.registry.index.searching import LeftOut, Search
from maskreg.store.base import Service
from maskreg.store.message import understanding

MOST_ITEMS = 1_000
"""Items of a page, the most that a server gives."""


def search_server(server: Service, query: Query) -> Search:
    """The tags that match, as far as the token's owner can read them, and the tags that the server cannot describe.

    The server does not take ``projects``, ``hidden`` and ``after`` from a client: the first two are applied here.
    """
    query.check()
    asked = _parameters(query)
    results: list[SearchResult] = []
    left_out: list[LeftOut] = []
    limit = MOST_ITEMS if query.limit is None else query.limit
    while len(results) < limit or query.limit is None:
        page = server.document("/artifacts", asked)
        with understanding(server.url):
            results += (row for row in map(_result, page["items"]) if _is_wanted(row.project, query))
            left_out += map(_left_out, page["left_out"])
            if page["next"] is None:
                break
            asked["cursor"] = str(page["next"])
    wanted = (row for row in left_out if _is_wanted(Ref.parse(row.ref).project, query))
    return Search(tuple(results[: query.limit]), tuple(wanted))


def overlaps_on_server(server: Service, digest: Digest) -> dict[str, Measurement]:
    """The latest recorded overlaps of an artifact, by metric: with the reference mask, and with another seed."""
    document = server.document(f"/artifacts/{digest}", {})
    with understanding(server.url):
        rows = {metric: document[metric] for metric in (RLVR_OVERLAP, SEED_OVERLAP) if document[metric] is not None}
        return {
            metric: Measurement(
                digest, metric, float(row["lift"]), str(row["against"]), at=datetime.fromisoformat(row["at"])
            )
            for metric, row in rows.items()
        }


def _parameters(query: Query) -> dict[str, str]:
    return {
        **({"text": query.text} if query.text else {}),
        **query.texts,
        **{key: f"{low!r}..{high!r}" for key, (low, high) in query.ranges.items()},
        "sort": f"{query.sort}:{'desc' if query.descending else 'asc'}",
        "limit": str(min(query.limit or MOST_ITEMS, MOST_ITEMS)),
    }


def _is_wanted(project: str, query: Query) -> bool:
    return (query.projects is None or project in query.projects) and project not in query.hidden


def _result(row: Mapping[str, Any]) -> SearchResult:
    result = checked(SearchResult, {name: row[name] for name in COLUMNS}, "a result")
    # Names become keys and parts of commands.
    Ref.parse(f"{result.project}/{result.name}:{result.tag}")
    return result


def _left_out(row: Mapping[str, Any]) -> LeftOut:
    digest = None if row["digest"] is None else Digest(row["digest"])
    return LeftOut(str(Ref.parse(row["ref"])), digest, DataError(str(row["reason"])))
