"""Aligned lines, whatever the words in them."""

from __future__ import annotations

from maskreg_cli.table import table


def test_what_is_escaped_is_measured_as_it_is_shown() -> None:
    lines = table([("name", "n"), ("odd\x1b", "1"), ("plain", "1,000")])
    assert lines == ["name         n", "odd\\x1b      1", "plain    1,000"]


def test_the_first_columns_may_be_words_and_the_first_may_be_wide() -> None:
    assert table([("a", "b", "1"), ("aa", "bb", "22")], right=2) == ["a   b    1", "aa  bb  22"]
    assert table([("a", "1")], first=8) == ["a       1"]
