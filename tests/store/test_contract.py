"""What every store promises, tried on each of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from maskreg.bucket.client import connect
from maskreg.errors import LimitError, NotFoundError, UsageError
from maskreg.store import Store
from maskreg.store.probe import probe
from tests.store.conftest import OWN, SERVED, empty_store


@pytest.fixture(params=[*OWN, *SERVED])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of every kind."""
    return empty_store(request.param, request, tmp_path)


WRITERS = 8


def keys(store: Store, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


def test_an_empty_store_has_nothing(store: Store) -> None:
    assert keys(store) == keys(store, "a/") == []
    assert store.head("a") is None
    store.delete(["a", "b/c"])
    with pytest.raises(NotFoundError, match=r" a$"):
        store.get("a", max_bytes=1)


def test_put_and_get(store: Store) -> None:
    for data in (b"", b"x", bytes(range(256)) * 5000, bytearray(b"abc"), memoryview(b"abc")):
        store.put("a/b", data)  # type: ignore[arg-type]
        assert store.get("a/b", max_bytes=len(data)) == data
        info = store.head("a/b")
        assert info is not None
        assert (info.key, info.size) == ("a/b", len(data))
        assert [(i.key, i.size) for i in store.list("a/")] == [("a/b", len(data))]
    with pytest.raises(LimitError, match=r"\b3\b.*\b2$"):
        store.get("a/b", max_bytes=2)


def test_create_only_writes_once(store: Store) -> None:
    assert store.create("a/b", b"first") is True
    assert store.create("a/b", b"second") is False
    assert store.get("a/b", max_bytes=10) == b"first"
    store.put("a/b", b"next")
    assert store.create("a/b", b"second") is False
    assert store.get("a/b", max_bytes=10) == b"next"
    store.delete(["a/b"])
    assert store.create("a/b", b"third") is True


def test_a_race_to_create_has_one_winner(store: Store) -> None:
    start = Barrier(WRITERS, timeout=60)

    def write(i: int) -> bool:
        start.wait()
        return store.create("race/won", b"%d" % i)

    with ThreadPoolExecutor(WRITERS) as pool:
        won = list(pool.map(write, range(WRITERS)))
    assert won.count(True) == 1
    assert store.get("race/won", max_bytes=10) == b"%d" % won.index(True)


def test_delete_takes_many_and_leaves_the_rest(store: Store) -> None:
    for key in ("a/1", "a/2", "a/3", "b"):
        store.put(key, b"")
    store.delete(["a/1", "a/3", "a/absent"])
    assert keys(store) == ["a/2", "b"]
    store.delete(iter(["a/2", "b"]))
    assert keys(store) == []


def test_a_deleted_place_can_be_used_again(store: Store) -> None:
    for _ in range(3):
        store.put("deep/down/a", b"x")
        assert store.create("deep/down/a", b"y") is False
        store.delete(["deep/down/a"])
        assert keys(store) == []


def test_list_is_in_key_order_and_by_whole_segments(store: Store) -> None:
    found = ["a-b/x", "a.json", "a/b-c", "a/b/c", "a/b0", "a0", "ab/x", "b", "z/é", "z/日本", "ä"]
    for key in reversed(found):
        store.put(key, b"")
    assert sorted(found) == found
    assert keys(store) == found
    assert keys(store, "a/") == ["a/b-c", "a/b/c", "a/b0"]
    assert keys(store, "a/b/") == ["a/b/c"]
    assert keys(store, "absent/") == []


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Listings of a bucket that were asked for, in pages of ten keys instead of a thousand."""
    asked: list[Any] = []

    def fewer(params: dict[str, object], **_: object) -> Any:
        asked.append(params)
        return {**params, "MaxKeys": 10}

    def connected(*args: Any, **options: Any) -> Any:
        client = connect(*args, **options)
        client.meta.events.register("provide-client-params.s3.ListObjectsV2", fewer)
        return client

    monkeypatch.setattr("maskreg.store.s3.connect", connected)
    return asked


def test_list_goes_on_after_a_page(pages: list[Any], store: Store, request: pytest.FixtureRequest) -> None:
    # Names around the slash, so that pages break where services that think in folders order them otherwise.
    names = sorted(f"many/{i % 7}{mark}{i:02d}" for i in range(16) for mark in "-./0")
    for name in names:
        store.put(name, b"")
    pages.clear()
    assert keys(store, "many/") == names
    assert len(pages) == (7 if "s3" in request.node.callspec.params["store"] else 0)


UNCLEAN = (
    *("", "/a", "a/", "a//b", "..", "a/../b", "./a", "a/.", "a\\b", "a\0b", "a\nb", "a\x7fb", "\ud800"),
    *(".tmp/a", "a" * 256, "a/" * 512 + "a"),
)


def test_keys_that_are_not_clean_are_refused(store: Store) -> None:
    for key in UNCLEAN:
        for action in (
            lambda key: store.get(key, max_bytes=1),
            lambda key: store.head(key),
            lambda key: store.put(key, b""),
            lambda key: store.create(key, b""),
            lambda key: store.delete([key]),
            lambda key: list(store.list(key + "/")),
        ):
            with pytest.raises(UsageError):
                action(key)
    assert keys(store) == []


def test_a_prefix_ends_with_a_slash(store: Store) -> None:
    with pytest.raises(ValueError, match="'/'"):
        list(store.list("a"))


def test_keys_may_be_strange(store: Store) -> None:
    strange = ["a b", "a+b&c=d?e#f%20", "...", ".hidden", "a:b@c", "é/日本", "'\"<>|*"]
    for key in strange:
        store.put(key, key.encode())
        assert store.get(key, max_bytes=100) == key.encode()
    assert keys(store) == sorted(strange, key=str.encode)
    store.delete(strange)
    assert [store.head(key) for key in strange] == [None] * len(strange)


def test_times_are_those_of_the_stores_clock(store: Store) -> None:
    # A clock can tick in whole seconds, and then lag by one.
    tick = timedelta(seconds=1.1)
    before = store.clock()
    store.put("a", b"")
    after = store.clock()
    info, (listed,) = store.head("a"), store.list("")
    assert info is not None
    for time in (info.modified, listed.modified, before):
        assert time.tzinfo is UTC
    for time in (info.modified, listed.modified):
        assert before - tick <= time <= after + tick


def test_probe_finds_it_safe_and_leaves_nothing(store: Store) -> None:
    store.put("a", b"x")
    assert probe(store).safe
    assert keys(store) == ["a"]
