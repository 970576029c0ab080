from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maskreg.artifact.manifest import Manifest
from maskreg.catalog import Event, Measurement, Query, SearchResult, open_catalog
from maskreg.catalog.catalog import Catalog
from maskreg.catalog.query import COLUMN_OF_SORT, RANGE_KEYS
from maskreg.catalog.schema import upgrade
from maskreg.digest import Digest
from maskreg.errors import CorruptError
from maskreg.ref import Card
from maskreg.store.reflog import RefEntry
from tests.catalog.conftest import digest, entry, manifest, seen_sources
from tests.servers import Postgres

REFS = list(product(["default", "team"], ["a", "b"], ["latest", "v1"]))
MANIFESTS = {
    digest(n): manifest(nnz=n * 100, ffn=(None, None, None) if n == 3 else (n / 10, n / 5, n / 2)) for n in range(4)
}
CARDS = [Card(), Card("qwen", "opd", "mit", "Größe"), Card("llama", "rlvr", "", "x", {"k": "v"})]
numbers = st.integers(0, 3)
words = st.one_of(
    st.tuples(st.just("artifact"), numbers),
    st.tuples(st.just("drop"), numbers),
    st.tuples(st.just("overlap"), numbers, st.floats(0, 1)),
    st.tuples(st.just("ref"), st.sampled_from(REFS), numbers, st.sampled_from(CARDS)),
    st.tuples(st.just("delete"), st.sampled_from(REFS)),
    st.tuples(st.just("late"), st.sampled_from(REFS), numbers),
)
QUERIES = [
    Query(),
    Query(sort="name", descending=False, limit=3),
    Query(text="grösse"),
    Query(family="qwen", density=(0.1, 0.3), sort="ffn_lift"),
    Query(rlvr_overlap=(0.2, 0.8), sort="rlvr_overlap"),
    *(Query(sort=sort, descending=number % 2 == 0) for number, sort in enumerate(COLUMN_OF_SORT)),
    *(Query(filters={key: (-math.inf, math.inf)}) for key in RANGE_KEYS),
    *(Query(text=text, limit=3) for text in ("100%", "_", digest(1).hex[:5], digest(1).short, "x team", "\0")),
]


class Store:
    """The facts that a store would hold, beside the catalog that is told of each."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.heads: dict[tuple[str, str, str], RefEntry] = {}
        self.manifests: dict[Digest, Manifest] = {}
        self.minutes = 0

    def step(self, word: tuple[Any, ...]) -> None:
        self.minutes += 1
        match word:
            case "artifact", n:
                self.manifests[digest(n)] = MANIFESTS[digest(n)]
                self.catalog.put_artifact(digest(n), MANIFESTS[digest(n)])
            case "drop", n:
                self.manifests.pop(digest(n), None)
                self.catalog.drop_artifact(digest(n))
            case "overlap", n, value:
                self.catalog.record(Measurement(digest(n), "rlvr_overlap", value, str(digest(9))))
            case "ref", ref, n, card:
                self._append(ref, digest(n), card)
            case "delete", ref:
                self._append(ref, None, Card())
            case "late", ref, n:
                # An entry that is indexed after its successor changes nothing.
                if ref in self.heads:
                    project, name, tag = ref
                    self.catalog.put_ref(entry(name, digest(n), project=project, tag=tag, n=0))

    def _append(self, ref: tuple[str, str, str], target: Digest | None, card: Card) -> None:
        project, name, tag = ref
        n = self.heads[ref].n + 1 if ref in self.heads else 1
        new = entry(name, target, project=project, tag=tag, n=n, card=card, minutes=self.minutes // 3)
        self.heads[ref] = new
        self.catalog.put_ref(new)


def answers(catalog: Catalog) -> list[list[SearchResult]]:
    return [catalog.search(query) for query in QUERIES]


@pytest.fixture
def urls(postgres: Postgres, tmp_path: Path) -> tuple[str, str]:
    """A database of each kind."""
    url = postgres.new_database()
    upgrade(url)
    return url, f"sqlite:///{tmp_path / 'catalog.db'}"


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(words, max_size=25))
def test_both_databases_answer_alike_and_a_rebuilt_index_like_the_one_it_replaces(
    urls: tuple[str, str], sequence: list[tuple[Any, ...]]
) -> None:
    found = []
    for url in urls:
        with open_catalog(url) as catalog:
            # Examples share a database: begin without an index, and with overlaps that hide the earlier ones.
            catalog.rebuild([], [])
            for n in range(4):
                catalog.record(Measurement(digest(n), "rlvr_overlap", 0.5))
            store = Store(catalog)
            for word in sequence:
                store.step(word)
            found.append(answers(catalog))
            catalog.rebuild(store.heads.values(), store.manifests.items())
            assert answers(catalog) == found[-1]
    assert found[0] == found[1]


def test_what_only_sql_holds_survives(catalog: Catalog) -> None:
    catalog.put_artifact(digest(1), manifest())
    catalog.put_ref(entry("gone", digest(1)))
    catalog.record(Measurement(digest(1), "rlvr_overlap", 0.5))
    catalog.record(Measurement(digest(2), "overlap", 0.25))
    catalog.log(Event("publish", "a"))
    catalog.saw_source("root", "/a")
    kept = (catalog.measurements(digest(1)), catalog.measurements(digest(2)), catalog.events())
    catalog.rebuild([entry("here", digest(1))], [(digest(1), manifest())])
    (found,) = catalog.search()
    assert (found.name, found.rlvr_overlap) == ("here", 0.5)
    assert (catalog.measurements(digest(1)), catalog.measurements(digest(2)), catalog.events()) == kept
    assert seen_sources(catalog) == ["/a"]


def test_a_store_that_cannot_be_read_leaves_the_old_index(catalog: Catalog) -> None:
    catalog.put_artifact(digest(1), manifest())
    catalog.put_ref(entry("a", digest(1)))

    def broken() -> Iterator[tuple[Digest, Manifest]]:
        yield digest(2), manifest()
        raise CorruptError("manifest.json", "damaged")

    with pytest.raises(CorruptError, match="damaged"):
        catalog.rebuild([], broken())
    assert [found.name for found in catalog.search()] == ["a"]
