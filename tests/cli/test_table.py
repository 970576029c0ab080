"""Aligned lines, with any words in them, and however narrow the terminal."""

from __future__ import annotations

import pytest
from maskreg_cli.table import folded, table


def test_what_is_escaped_is_measured_as_it_is_shown() -> None:
    lines = table([("name", "n"), ("odd\x1b", "1"), ("plain", "1,000")])
    assert lines == ["name         n", "odd\\x1b      1", "plain    1,000"]


def test_a_wide_table_is_cut_between_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("layer", "density", "lift"), ("0", "25.3 %", "1.02x")]
    monkeypatch.setenv("COLUMNS", "14")
    assert table(rows) == ["layer  density", "0       25.3 %", "", "layer   lift", "0      1.02x"]
    assert table(rows, room=21) == ["layer  density   lift", "0       25.3 %  1.02x"]
    rows = [("", "density", "lift"), ("model.embed_tokens", "25.3 %", "1.02x")]
    assert table(rows, room=18) == ["  density   lift", "model.embed_tokens", "   25.3 %  1.02x"]


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
