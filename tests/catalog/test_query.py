from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from sqlalchemy import event, text

from maskreg.catalog import Query, open_catalog
from maskreg.catalog.catalog import Catalog, matches
from maskreg.catalog.engine import make_engine, parse_address
from maskreg.catalog.query import COLUMN_OF_SORT
from maskreg.catalog.rows import MAX_WORD
from maskreg.errors import UsageError
from maskreg.ref import Card
from tests.catalog.conftest import digest, entry, manifest

LONG = "x" * MAX_WORD


@pytest.fixture
def full(catalog: Catalog) -> Catalog:
    """Four refs that differ in every column."""
    rows = [
        ("alpha", "team", Card("qwen3-8b", "opd", "mit", "Größer als 100% of_all"), 100, (0.1, 0.5, 0.9)),
        ("beta", "team", Card("qwen3-8b", "rlvr", "mit", "second"), 400, (0.4, 0.6, 1.0)),
        ("gamma", "lab", Card("llama3-8b", "opd", "apache-2.0", "back\\slash"), 600, (0.6, 0.8, 1.2)),
        ("delta", "lab", Card("llama3-8b", "sft", "", f"no FFN's \\'数学推理 {LONG}"), 900, (None, None, None)),
    ]
    for number, (name, project, card, nnz, ffn) in enumerate(rows):
        kind = "mask" if name == "beta" else "delta"
        catalog.put_artifact(digest(number), manifest(nnz=nnz, ffn=ffn, kind=kind, size=1000 - number))
        catalog.put_ref(entry(name, digest(number), project=project, card=card, minutes=number))
    return catalog


METHODS = {"opd": 2, "rlvr": 1, "sft": 1}


COUNTS: list[tuple[dict[str, Any], int, object, object, object]] = [
    ({}, 4, METHODS, {"mit": 2, "apache-2.0": 1}, {0: 1, 8: 1, 23: 1}),
    ({"method": "opd"}, 2, METHODS, {"apache-2.0": 1, "mit": 1}, {0: 1, 23: 1}),
    ({"ffn_lift": (1.1, 2.0), "text": "lab"}, 1, {"opd": 1}, {"apache-2.0": 1}, {0: 1}),
    ({"projects": frozenset()}, 0, {}, {}, {}),
]


def test_names_are_counted_under_the_other_filters(full: Catalog) -> None:
    for filters, total, methods, licenses, bars in COUNTS:
        counts = full.counts(Query(**filters), ("method", "license", "ffn_lift"))
        assert (counts.total, counts.values) == (total, {"method": methods, "license": licenses})
        for of in counts.values.values():
            assert list(of) == sorted(of, key=lambda value: (-of[value], value))
        drawn = counts.histograms["ffn_lift"].bars if counts.histograms else []
        assert {bar: number for bar, number in enumerate(drawn) if number} == bars


def test_many_names_are_counted_in_a_sample_and_few_of_them_whole(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = {True: Card("rare", "sft"), False: Card("qwen3-8b", "opd")}
    entries = [entry(f"n{number}", digest(number), card=cards[number < 10]) for number in range(400)]
    catalog.rebuild(entries, [(digest(number), manifest(nnz=number)) for number in range(400)])
    monkeypatch.setattr("maskreg.catalog.catalog.SAMPLE", 200)
    keys = ("method", "density")
    some, few = catalog.counts(Query(), keys), catalog.counts(Query(family="rare"), keys)
    assert some.estimates == {"total", *keys}
    assert sum(some.histograms["density"].bars) == pytest.approx(400, rel=0.2)
    assert [some.total, some.values["method"]["opd"]] == pytest.approx([400, 390], rel=0.2)
    assert (few.total, few.values["method"], few.estimates) == (10, {"sft": 10}, set())
    assert catalog.counts(Query(family="rare"), ("family",)).estimates == {"family"}
    catalog.rebuild([entry(f"n{number}", digest(0)) for number in range(400)], [(digest(0), manifest())])
    assert catalog.counts(Query(), keys)[::3] == (400, set())


def test_an_offset_skips_names(full: Catalog) -> None:
    for sort in COLUMN_OF_SORT:
        pages = [full.search(Query(sort=sort, limit=2, offset=offset)) for offset in (0, 2, 4)]
        assert [row for page in pages for row in page] == full.search(Query(sort=sort))
    with pytest.raises(UsageError):
        full.search(Query(offset=-1, limit=1))


def names(catalog: Catalog, **conditions: object) -> list[str]:
    return [f.name for f in catalog.search(Query(**{"sort": "name", "descending": False, **conditions}))]  # type: ignore[arg-type]


TEXTS: list[tuple[str, list[str]]] = [
    ("", ["alpha", "beta", "delta", "gamma"]),
    ("ALPHA", ["alpha"]),
    ("GRÖSSER", ["alpha"]),
    ("größer", ["alpha"]),
    ("100%", ["alpha"]),
    ("1%0", []),
    ("of_all", ["alpha"]),
    ("o__all", []),
    ("back\\slash", ["gamma"]),
    ("back/slash", []),
    ("Qwen3", ["alpha", "beta"]),
    ("qwen3 second", ["beta"]),
    ("second qwen3", ["beta"]),
    ("qwen3 gamma", []),
    ("lab", ["delta", "gamma"]),
    ("'; DROP TABLE refs; --", []),
    ("alpha\nteam", ["alpha"]),
    # The beginning of a word, which a letter or digit begins that follows none.
    ("8b", ["alpha", "beta", "delta", "gamma"]),
    ("wen3", []),
    ("3-8b", []),
    ("all", ["alpha"]),
    ("slash", ["gamma"]),
    ("\\slash", []),
    # Where no spaces are written, each character begins one.
    ("推理", ["delta"]),
    ("学推", ["delta"]),
    ("推学", []),
    ("FFN's \\'", ["delta"]),
    (f"ffn {LONG}", ["delta"]),
    (f"ffn {LONG[:-1]}y", []),
    # Longer words are compared by their first characters.
    (f"ffn {LONG}-and-more", ["delta"]),
]


def test_text(full: Catalog) -> None:
    assert [(text, names(full, text=text)) for text, _ in TEXTS] == TEXTS


def test_text_matches_the_beginning_of_a_digest(full: Catalog) -> None:
    assert names(full, text=digest(2).short) == ["gamma"]
    assert names(full, text=digest(2).hex[:4].upper()) == ["gamma"]
    assert names(full, text=digest(2).hex[1:9]) == []


CONDITIONS: list[tuple[dict[str, object], list[str]]] = [
    ({"project": "lab"}, ["delta", "gamma"]),
    ({"family": "qwen3-8b", "method": "opd"}, ["alpha"]),
    ({"license": "mit"}, ["alpha", "beta"]),
    ({"kind": "mask"}, ["beta"]),
    ({"density": (0.4, 0.6)}, ["beta", "gamma"]),
    ({"density": (0.41, 0.59)}, []),
    ({"density": (0.6, math.inf)}, ["delta", "gamma"]),
    ({"ffn_density": (-math.inf, math.inf)}, ["alpha", "beta", "gamma"]),
    ({"ffn_share": (0.5, 0.6)}, ["alpha", "beta"]),
    ({"ffn_lift": (1.0, 2.0)}, ["beta", "gamma"]),
    ({"rlvr_overlap": (-math.inf, math.inf)}, []),
    ({"digest": str(digest(1))}, ["beta"]),
    ({"projects": frozenset({"lab", "none"})}, ["delta", "gamma"]),
    ({"projects": frozenset({"lab", "none"}), "limit": 9}, ["delta", "gamma"]),
    ({"projects": frozenset()}, []),
    ({"hidden": frozenset({"lab"})}, ["alpha", "beta"]),
    ({"project": "team", "projects": frozenset({"lab"})}, []),
    ({"limit": 2}, ["alpha", "beta"]),
    ({"limit": 0}, []),
]


def test_conditions(full: Catalog) -> None:
    assert [(conditions, names(full, **conditions)) for conditions, _ in CONDITIONS] == CONDITIONS


ORDERS = [
    ("created", True, ["delta", "gamma", "beta", "alpha"]),
    ("created", False, ["alpha", "beta", "gamma", "delta"]),
    ("name", True, ["gamma", "delta", "beta", "alpha"]),
    ("density", False, ["alpha", "beta", "gamma", "delta"]),
    ("size", False, ["delta", "gamma", "beta", "alpha"]),
    # Without a number: last, whichever way.
    ("ffn_lift", True, ["gamma", "beta", "alpha", "delta"]),
    ("ffn_lift", False, ["alpha", "beta", "gamma", "delta"]),
    # Ties: project, name, tag.
    ("rlvr_overlap", True, ["delta", "gamma", "alpha", "beta"]),
    ("params", True, ["delta", "gamma", "alpha", "beta"]),
]


def test_order(full: Catalog) -> None:
    for sort, descending, expected in ORDERS:
        assert [f.name for f in full.search(Query(sort=sort, descending=descending))] == expected, (sort, descending)


def test_texts_sort_byte_by_byte(catalog: Catalog) -> None:
    catalog.put_artifact(digest(1), manifest())
    for tag in ("a-b", "a.b", "B", "_", "a", "a0"):
        catalog.put_ref(entry("x", digest(1), tag=tag))
    tags = [f.tag for f in catalog.search(Query(sort="name"))]
    assert tags == sorted(tags, key=str.encode)


def test_page_after_page_gives_all_results_once(full: Catalog) -> None:
    full.put_ref(entry("alpha", digest(0), project="lab", minutes=2))
    for sort, descending in product(COLUMN_OF_SORT, (True, False)):
        query = Query(sort=sort, descending=descending)
        rows = full.search(query)
        pages, after = [], None
        while page := full.search(replace(query, limit=2, after=after)):
            pages += page
            after = page[-1].position(sort)
        assert pages == rows
        assert len(rows) == 5


def test_a_page_begins_where_the_last_one_ended_after_additions_and_removals(full: Catalog) -> None:
    query = Query(sort="name", descending=False, limit=2)
    first = full.search(query)
    full.put_ref(entry("aaa", digest(0)))
    full.put_ref(entry("beta", project="team", n=2))
    full.put_ref(entry("beta-2", digest(0)))
    second = full.search(replace(query, after=first[-1].position("name")))
    assert [row.name for row in (*first, *second)] == ["alpha", "beta", "beta-2", "delta"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (Query(sort="color"), "cannot sort by 'color'"),
        (Query(density=(0.6, 0.4)), "density 0.6..0.4 is not a range"),
        (Query(ffn_lift=(math.nan, 1.0)), "is not a range"),
        (Query(density="x"), "matches a range"),
        (Query(density=(0.1, 0.2, 0.3)), "matches a range"),  # type: ignore[arg-type]
        (Query(density=("a", "b")), "matches a range"),  # type: ignore[arg-type]
        (Query(kind=(0.1, 0.2)), "matches a text"),
        (Query(limit=-1), "negative"),
        (Query(limit=2**63), "too large"),
        (Query(text="x" * 1001), "1001 characters"),
    ],
)
def test_questions_that_make_no_sense_are_refused(query: Query, message: str) -> None:
    with open_catalog("sqlite://") as catalog, pytest.raises(UsageError, match=message):
        catalog.search(query)


def test_a_word_in_a_project_is_not_one_of_another(catalog: Catalog) -> None:
    catalog.put_artifact(digest(0), manifest())
    for project in ("team.a_b", "team.a", "team"):
        catalog.put_ref(entry("mask", digest(0), project=project))
    assert [row.project for row in catalog.search(Query(text="mas", project="team.a_b"))] == ["team.a_b"]
    assert [row.project for row in catalog.search(Query(text="mas", project="team"))] == ["team"]
    assert catalog.search(Query(text="mas", project="tea")) == []


def test_postgresql_finds_words_by_an_index(shared_url: str) -> None:
    engine = make_engine(parse_address(shared_url))
    asked: list[tuple[str, Any]] = []
    event.listen(
        engine, "before_cursor_execute", lambda _c, _k, statement, values, *_: asked.append((statement, values))
    )
    with engine.connect() as connection:
        matches(connection, Query(text="mathe'm"))
        connection.execute(text("SET enable_seqscan = off"))
        search, values = asked[0]
        plan = connection.exec_driver_sql(f"EXPLAIN {search}", values).scalars().all()
    engine.dispose()
    assert "ix_refs_words" in "\n".join(plan)
