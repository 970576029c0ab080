"""Searching an index, and holding what it answers against the store.

Every name is compared with one listing of the log::

    number of a tag's latest entry    in the log   in the catalog
    the same                               4             4          nothing to do
    the catalog is behind                  4             3, none    a writer died, or could not reach it: index entry 4
    the log is behind                  3, none           4          entry 4 was lost, or an older copy put back: damage
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from maskreg.catalog.query import COLUMNS, RLVR_OVERLAP, SEED_OVERLAP, Measurement, Query, SearchResult
from maskreg.digest import Digest
from maskreg.document import checked
from maskreg.errors import CorruptError, DataError, MaskregError, NotAllowedError, NotFoundError
from maskreg.parallel import ordered
from maskreg.ref import Ref
from maskreg.result import Result, plain
from maskreg.store.base import Service, Store
from maskreg.store.entry import entry_key

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest


@dataclass(frozen=True)
class LeftOut(Result):
    """A name that a listing cannot describe.

    Attributes:
        ref: the name.
        digest: the artifact that it points to; None when its entry in the ref log cannot be read.
        error: what is damaged or missing.
    """

    ref: str
    digest: Digest | None
    error: MaskregError

    @property
    def reason(self) -> str:
        """What is damaged or missing, as a sentence."""
        return self.error.message

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        error = self.error.to_json()
        return {"ref": self.ref, "digest": plain(self.digest), "reason": error.pop("message"), **error}


@dataclass(frozen=True)
class Search:
    """What a search found, and what it could not look at."""

    results: tuple[SearchResult, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True)
class Rebuilt(Result):
    """A catalog that was recreated from the store.

    Attributes:
        refs: tags in it.
        artifacts: artifacts in it.
        damaged: what could not be read in the store, and was left out.
        damaged_catalog: where the damaged file of the catalog is now, with the measurements and events that only it
            held; empty when it was rebuilt in place.
    """

    refs: int
    artifacts: int
    damaged: tuple[MaskregError, ...]
    damaged_catalog: str = ""


def without(search: Search, damaged: Mapping[Ref, DataError]) -> Search:
    """A search whose results do not hold these refs, with the reason; what it left out is in order."""
    results = tuple(row for row in search.results if Ref(row.project, row.name, row.tag) not in damaged)
    left_out = {str(ref): LeftOut(str(ref), None, error) for ref, error in damaged.items()}
    # Damage that was read says more than what is missing.
    left_out |= {name.ref: name for name in search.left_out}
    return Search(results, tuple(left_out[ref] for ref in sorted(left_out)))


def lost(
    log: Mapping[Ref, int], known: Mapping[Ref, int], memory: str = "is in the catalog", seen_on: str | None = None
) -> dict[Ref, CorruptError]:
    """Tags of which an entry is known that the log has no more, and the damage.

    Args:
        log: number of the latest entry of each tag in the store.
        known: the same in the catalog, or in what this machine remembers.
        memory: how the entry is known, for the message.
        seen_on: name of the remote where this machine has seen the entries; None for entries of the catalog.
    """
    return {
        ref: CorruptError(
            entry_key(ref, n),
            f"entry {n} of {ref} {memory}, and is missing from the store"
            + (f", whose latest is entry {log[ref]}" if log.get(ref) else ""),
            hint="restore it from a copy; or accept the loss" if seen_on is None else "",
            ref=ref,
            **({"indexed": True} if seen_on is None else {"seen": True, "remote": seen_on}),
        )
        for ref, n in sorted(known.items(), key=lambda item: str(item[0]))
        if n > log.get(ref, 0)
    }


_READERS = 16


def digests_in(store: Store) -> Iterator[Digest]:
    """Artifacts of which the store holds at least the manifest."""
    from maskreg.artifact.layout import ARTIFACTS, MANIFEST

    for info in store.list(ARTIFACTS):
        name, _, key = info.key.removeprefix(ARTIFACTS).partition("/")
        if key == MANIFEST:
            try:
                yield Digest(f"sha256:{name}")
            except ValueError:
                continue


def readable_manifests(
    store: Store, digests: Iterable[Digest], damaged: list[MaskregError]
) -> Iterator[tuple[Digest, Manifest]]:
    """The manifests of ``digests``; errors of missing, damaged or forbidden ones are appended to ``damaged``."""
    from maskreg.artifact.presence import read_manifest

    def read(digest: Digest) -> tuple[Digest, Manifest | MaskregError]:
        try:
            return digest, read_manifest(store, digest)[1]
        except (DataError, NotFoundError, NotAllowedError) as error:
            return digest, error

    with closing(ordered(read, digests, jobs=_READERS)) as results:
        for digest, result in results:
            if isinstance(result, MaskregError):
                damaged.append(result)
            else:
                yield digest, result


MOST_ITEMS = 1_000
"""Items of a page, the most that a server gives."""


def search_server(server: Service, query: Query) -> Search:
    """The tags that match, as far as the token's owner can read them, and the tags that the server cannot describe.

    The server does not take ``projects``, ``hidden`` and ``after`` from a client: the first two are applied here.
    """
    from maskreg.store.message import understanding

    query.check()
    asked = {
        **({"text": query.text} if query.text else {}),
        **query.texts,
        **{key: f"{low!r}..{high!r}" for key, (low, high) in query.ranges.items()},
        "sort": f"{query.sort}:{'desc' if query.descending else 'asc'}",
        "limit": str(min(query.limit or MOST_ITEMS, MOST_ITEMS)),
    }
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
    from maskreg.store.message import understanding

    document = server.document(f"/artifacts/{digest}", {})
    with understanding(server.url):
        rows = {metric: document[metric] for metric in (RLVR_OVERLAP, SEED_OVERLAP) if document[metric] is not None}
        return {
            metric: Measurement(
                digest, metric, float(row["lift"]), str(row["against"]), at=datetime.fromisoformat(row["at"])
            )
            for metric, row in rows.items()
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
