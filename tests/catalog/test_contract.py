"""What every catalog has to do, in any database."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from maskreg.catalog import Event, Measurement, Query, SearchResult
from maskreg.catalog.catalog import Catalog
from maskreg.catalog.rows import MAX_WORD, MAX_WORDS
from maskreg.errors import UsageError
from maskreg.ref import Card, Ref
from tests.catalog.conftest import START, digest, entry, manifest, seen_sources


def names(catalog: Catalog, query: Query = Query()) -> list[str]:  # noqa: B008
    return [found.name for found in catalog.search(query)]


def test_what_was_put_is_found_with_every_column(catalog: Catalog) -> None:
    card = Card("qwen3-8b", "opd", "apache-2.0", "an update", {"lr": "1e-6"})
    catalog.put_artifact(digest(1), manifest())
    catalog.put_ref(entry("qwen3-8b-opd", digest(1), project="team", tag="v1", card=card))
    (found,) = catalog.search()
    assert (found.project, found.name, found.tag, found.digest) == ("team", "qwen3-8b-opd", "v1", digest(1))
    assert Card(found.family, found.method, found.license, found.description, card.meta) == card
    assert (found.kind, found.rule, found.exact, found.density) == ("delta", "exact", True, 0.25)
    assert (found.ffn_density, found.ffn_share, found.ffn_lift) == (0.3, 0.8, 1.2)
    assert (found.rlvr_overlap, found.rlvr_against) == (None, None)
    assert (found.nnz, found.numel, found.params, found.size) == (250, 1000, 1000, 4096)
    assert found.source_root == manifest().source.root
    assert found.target_root == manifest().target.root
    assert found.source_hub == "org/source@abc"
    assert (found.by, found.at) == ("ada", START)
    assert found.at.tzinfo is UTC


def indexed(catalog: Catalog, number: int = 1) -> SearchResult:
    """The indexed facts of an artifact, which get a name for that."""
    catalog.put_ref(entry("named", digest(number)))
    (row,) = catalog.search(Query(digest=digest(number)))
    return row


def test_an_artifact_is_indexed_with_what_it_lacks(catalog: Catalog) -> None:
    assert not catalog.has(digest(1))
    catalog.put_artifact(digest(1), manifest(ffn=(None, None, None)))
    assert catalog.has(digest(1))
    known = indexed(catalog)
    assert (known.density, known.ffn_lift, known.params) == (0.25, None, 1000)


def test_numbers_as_large_as_the_format_allows_survive(catalog: Catalog) -> None:
    largest = (1 << 63) - 1
    catalog.put_artifact(digest(1), manifest(nnz=largest, numel=largest, size=largest))
    known = indexed(catalog)
    assert (known.nnz, known.numel, known.params, known.size) == (largest, largest, largest, largest)


def test_the_newest_entry_of_a_tag_wins_in_any_order(catalog: Catalog) -> None:
    for number in (1, 2):
        catalog.put_artifact(digest(number), manifest())
    catalog.put_ref(entry("a", digest(2), n=2, card=Card(family="new")))
    catalog.put_ref(entry("a", digest(1), n=1, card=Card(family="old")))
    (found,) = catalog.search()
    assert (found.digest, found.family) == (digest(2), "new")
    catalog.put_ref(entry("a", digest(1), n=3))
    assert catalog.search()[0].digest == digest(1)


def test_deleted_refs_and_refs_without_artifact_are_not_found(catalog: Catalog) -> None:
    catalog.put_artifact(digest(1), manifest())
    catalog.put_ref(entry("a", digest(1), n=1))
    catalog.put_ref(entry("b", digest(2), n=1))
    assert names(catalog) == ["a"]
    catalog.put_ref(entry("a", None, n=2))
    assert names(catalog) == []
    catalog.put_ref(entry("a", digest(1), n=3))
    assert names(catalog) == ["a"]
    catalog.drop_artifact(digest(1))
    assert names(catalog) == []


def test_texts_that_a_database_cannot_hold_are_replaced(catalog: Catalog) -> None:
    catalog.put_artifact(digest(1), manifest())
    catalog.put_ref(entry("a", digest(1), card=Card("f\0", "m\ud800", "", "d\0\ud800", {"k": "v\0\ud800"})))
    (found,) = catalog.search(Query(family="f\0", text="d\0"))
    assert (found.family, found.method, found.description) == ("f\ufffd", "m?", "d\ufffd?")


def test_all_that_outsiders_write_into_a_ref_log_can_be_indexed(catalog: Catalog) -> None:
    long = random.Random(0).randbytes(20_000).hex()
    first = datetime.min.replace(tzinfo=UTC)
    last = datetime.max.replace(tzinfo=UTC)
    catalog.put_artifact(digest(1), manifest())
    for tag, at in (("first", first), ("last", last)):
        odd = entry("a", digest(1), tag=tag, n=10**20 - 1, card=Card(long, long, long, long, {"k": long}))
        catalog.put_ref(replace(odd, at=at))
    newest, oldest = catalog.search(Query(text=long[:100]))
    assert (newest.at, oldest.at) == (last, first)
    assert newest.description == long
    assert long.startswith(newest.family)


def test_the_first_words_of_a_very_long_text_are_indexed(catalog: Catalog) -> None:
    words = [f"{number:04d}" + "\N{GRINNING FACE}" * MAX_WORD for number in range(MAX_WORDS)]
    catalog.put_artifact(digest(1), manifest())
    catalog.put_ref(entry("a", digest(1), card=Card(description="-".join(words))))
    assert [len(catalog.search(Query(text=text))) for text in (words[0], words[900], words[-1])] == [1, 1, 0]


def test_measurements_are_kept_in_order(catalog: Catalog) -> None:
    where = timezone(timedelta(hours=2))
    first = Measurement(digest(1), "overlap", 0.5, str(digest(2)), "ffn", {"n": [1, None]}, "ada", START)
    second = Measurement(digest(1), "overlap", 0.25, "random-global seed 7", at=START.astimezone(where))
    catalog.record(first)
    catalog.record(second)
    catalog.record(Measurement(digest(2), "overlap", 0.1))
    one, two = catalog.measurements(digest(1))
    assert one == Measurement(digest(1), "overlap", 0.5, str(digest(2)), "ffn", {"n": [1, None]}, "ada", START, one.id)
    assert (two.value, two.against, two.at, two.at.tzinfo) == (0.25, "random-global seed 7", START, UTC)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_only_finite_numbers_and_json_are_recorded(value: float) -> None:
    with pytest.raises(UsageError, match=str(value)):
        Measurement(digest(1), "overlap", value)
    with pytest.raises(UsageError, match="JSON"):
        Event("publish", "a", detail={"x": value})
    with pytest.raises(UsageError, match="JSON"):
        Event("publish", "a", detail={"x": object()})
    with pytest.raises(UsageError, match="2025-03-01"):
        Event("publish", "a", at=START.replace(tzinfo=None))


def test_the_latest_rlvr_overlap_of_the_whole_mask_becomes_a_column(catalog: Catalog) -> None:
    catalog.put_artifact(digest(1), manifest())
    catalog.put_ref(entry("a", digest(1)))
    catalog.record(Measurement(digest(1), "rlvr_overlap", 0.6, str(digest(8))))
    catalog.record(Measurement(digest(1), "rlvr_overlap", 0.9, str(digest(9)), by_group="ffn"))
    catalog.record(Measurement(digest(1), "overlap", 0.8))
    (found,) = catalog.search(Query(rlvr_overlap=(0.6, 0.6)))
    assert (found.rlvr_overlap, found.rlvr_against) == (0.6, digest(8))
    catalog.record(Measurement(digest(1), "rlvr_overlap", 0.4, str(digest(9))))
    (found,) = catalog.search()
    assert (found.rlvr_overlap, found.rlvr_against) == (0.4, digest(9))


def test_an_overlap_recorded_before_indexing_or_before_a_drop_counts(catalog: Catalog) -> None:
    catalog.record(Measurement(digest(1), "rlvr_overlap", 0.6))
    catalog.put_artifact(digest(1), manifest())
    assert indexed(catalog).rlvr_overlap == 0.6
    catalog.drop_artifact(digest(1))
    catalog.put_artifact(digest(1), manifest())
    assert indexed(catalog).rlvr_overlap == 0.6
    catalog.put_artifact(digest(1), manifest())
    assert indexed(catalog).rlvr_overlap == 0.6


def test_events_come_newest_first_and_by_condition(catalog: Catalog) -> None:
    for minute, (action, subject, by) in enumerate(
        [("publish", "a", "ada"), ("publish", "b", "bob"), ("remove", "a", "bob")]
    ):
        at = START + timedelta(minutes=minute)
        catalog.log(Event(action, subject, by, {"minute": minute}, at))
    assert [(e.action, e.subject) for e in catalog.events()] == [("remove", "a"), ("publish", "b"), ("publish", "a")]
    assert [e.detail["minute"] for e in catalog.events(subject="a")] == [2, 0]
    assert [e.detail["minute"] for e in catalog.events(action="publish", subject="b")] == [1]
    assert [e.detail["minute"] for e in catalog.events(limit=1)] == [2]


def test_sources_are_remembered_once_and_the_latest_comes_first(catalog: Catalog) -> None:
    for path in ("/models/a", "/models/ü b", "/models/a"):
        catalog.saw_source("root", path)
    assert seen_sources(catalog) == ["/models/a", "/models/ü b"]


def test_the_reference_of_a_source_is_one_question(catalog: Catalog) -> None:
    for number, (source, tag) in enumerate([("a", "reference"), ("b", "reference"), ("a", "latest")]):
        catalog.put_artifact(digest(number), manifest(source=source))
        catalog.put_ref(entry(f"n{number}", digest(number), tag=tag, minutes=number))
    root = manifest(source="a").source.root
    assert names(catalog, Query(tag="reference", source_root=root)) == ["n0"]
    assert names(catalog, Query(source_root=root)) == ["n2", "n0"]
    assert names(catalog, Query(tag="reference")) == ["n1", "n0"]
    assert names(catalog, Query(tag="none", source_root=root)) == []


def test_an_answer_says_what_the_index_lacks_and_how_far_it_is(catalog: Catalog) -> None:
    catalog.put_ref(entry("a", digest(1), n=3))
    catalog.put_ref(entry("b", None, n=2))
    answer = catalog.answer(Query(text="nothing"))
    assert answer.unindexed == [(Ref.parse("a"), digest(1))]
    assert answer.numbers == {Ref.parse("a"): 3, Ref.parse("b"): 2} == catalog.all_numbers()
