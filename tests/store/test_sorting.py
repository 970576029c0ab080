"""Listings are put into the order of keys, however long they are and whatever order they come in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.store import ObjectInfo
from maskreg.store.s3 import in_key_order

START = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)
keys = st.lists(st.text(st.sampled_from("ab-/.é"), min_size=1), unique=True)


def infos(names: list[str]) -> list[ObjectInfo]:
    return [ObjectInfo(name, number, START + timedelta(microseconds=number)) for number, name in enumerate(names)]


@given(keys, st.integers(1, 5))
def test_any_listing_is_sorted_and_nothing_else_changes(names: list[str], run: int) -> None:
    listing = infos(names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("maskreg.store.s3.RUN", run)
        assert list(in_key_order(listing)) == sorted(listing, key=lambda info: info.key)


def test_folders_that_a_service_lists_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskreg.store.s3.RUN", 2)
    listed = infos(["a/x", "a/y", "a-b", "b/x", "b/y"])
    assert [info.key for info in in_key_order(iter(listed))] == ["a-b", "a/x", "a/y", "b/x", "b/y"]
