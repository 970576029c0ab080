"""Aligned lines, whatever the words in them, and however narrow the terminal."""

from __future__ import annotations

import pytest
from maskreg_cli.table import fields, folded, paragraph, table


def test_what_is_escaped_is_measured_as_it_is_shown() -> None:
    lines = table([("name", "n"), ("odd\x1b", "1"), ("plain", "1,000")])
    assert lines == ["name         n", "odd\\x1b      1", "plain    1,000"]


def test_the_first_columns_may_be_words_and_the_first_may_be_wide() -> None:
    assert table([("a", "b", "1"), ("aa", "bb", "22")], right=2) == ["a   b    1", "aa  bb  22"]
    assert table([("a", "1")], first=8) == ["a       1"]
    assert table([("a", "b", "1"), ("aa", "bb", "22")], right=[0, 2]) == [" a  b    1", "aa  bb  22"]
    assert table([("漢字", "1"), ("abc", "1"), ("e\u0301", "1")]) == ["漢字  1", "abc   1", "e\u0301     1"]


def test_a_wide_table_is_cut_between_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("layer", "density", "lift"), ("0", "25.3 %", "1.02x")]
    monkeypatch.setenv("COLUMNS", "14")
    assert table(rows) == ["layer  density", "0       25.3 %", "", "layer   lift", "0      1.02x"]
    assert table(rows, room=21) == ["layer  density   lift", "0       25.3 %  1.02x"]
    rows = [("", "density", "lift"), ("model.embed_tokens", "25.3 %", "1.02x")]
    assert table(rows, room=18) == ["  density   lift", "model.embed_tokens", "   25.3 %  1.02x"]


def test_every_block_repeats_all_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("role", "at", "density", "lift"), ("ffn", "1", "25.3 %", "1.02x"), ("ffn", "22", "3.1 %", "1.10x")]
    monkeypatch.setenv("COLUMNS", "19")
    assert table(rows, right=2, labels=2) == [
        *("role  at  density", "ffn   1    25.3 %", "ffn   22    3.1 %", ""),
        *("role  at   lift", "ffn   1   1.02x", "ffn   22  1.10x"),
    ]
    monkeypatch.setenv("COLUMNS", "15")
    assert table(rows[:2], right=2, labels=2)[:4] == ["role  at", "  density", "ffn  1", "   25.3 %"]


@pytest.mark.parametrize("columns", ["60", "80", "140"])
def test_words_are_never_broken(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = "the exponent-matched null of sha256:c522a357786b expects 1,071,234 of 2,456,176 coordinates in both masks"
    for lines in (paragraph(text, indent="  "), fields([("expected", text)], 19)):
        assert max(map(len, lines)) <= int(columns)
        assert set(" ".join(lines).split()) - {"expected"} == set(text.split())


def test_a_number_stays_with_its_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    assert paragraph("of it all 46.8 % or 1.5 MiB") == ["of it all", "46.8 % or", "1.5 MiB"]
    assert fields([("size", "46.8 % of it")], 5) == ["size 46.8 %", "     of it"]


def test_a_short_list_is_whole_and_a_long_one_keeps_ends_and_extremes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    def fold(n: int) -> tuple[dict[str, float | None], list[str]]:
        groups = {str(i): None if i == 5 else float((i * 7) % n) for i in range(n)}
        kept, lines = folded(groups, lambda value: value, things="layers", by="density")
        return kept, lines

    assert len(fold(16)[0]) == 16
    assert fold(16)[1] == []
    kept, lines = fold(80)
    assert {"0", "1", "78", "79"} < set(kept)
    assert {0.0, 1.0, 2.0, 77.0, 78.0, 79.0} <= set(kept.values())
    assert list(kept) == sorted(kept, key=int)
    told = " ".join(" ".join(lines).split())
    assert f"folded: {80 - len(kept)} of 80 layers." in told
    assert told.endswith("All: --verbose")
