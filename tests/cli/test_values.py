"""Option values that are more than a word."""

from __future__ import annotations

import math
from datetime import timedelta

import click
import pytest
from maskreg_cli.values import DURATION, PAIR, RANGE, REF

from maskreg.errors import BadRefError
from maskreg.ref import Ref

INF = math.inf


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("0.4..0.6", (0.4, 0.6)),
        ("0.4..", (0.4, INF)),
        ("..0.6", (-INF, 0.6)),
        ("0.5", (0.5, 0.5)),
        ("1..1", (1.0, 1.0)),
        ("1e-3..2", (0.001, 2.0)),
    ],
)
def test_ranges(text: str, bounds: tuple[float, float]) -> None:
    assert RANGE.convert(text, None, None) == bounds


@pytest.mark.parametrize("text", ["", "..", "0.6..0.4", "a..b", "0.4...0.6", "nan..1", "nan", "0.4-0.6"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(click.BadParameter):
        RANGE.convert(text, None, None)


@pytest.mark.parametrize("text", ["nan", "nan..1", "0..nan", ".."])
def test_what_is_no_range_is_not_called_empty(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a range"):
        RANGE.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("7d", timedelta(7)),
        ("12h", timedelta(hours=12)),
        ("0s", timedelta(0)),
        ("2w", timedelta(14)),
        ("5200w", timedelta(36400)),
    ],
)
def test_durations(text: str, length: timedelta) -> None:
    assert DURATION.convert(text, None, None) == length


@pytest.mark.parametrize("text", ["7", "d", "-1d", "1.5h", "7 d", "99999999d", "999999w", "٣d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter):
        DURATION.convert(text, None, None)


def test_pairs_split_at_the_first_equals() -> None:
    assert PAIR.convert("lr=a=b", None, None) == ("lr", "a=b")
    assert PAIR.convert("seed=", None, None) == ("seed", "")
    for text in ("seed", "=1", ""):
        with pytest.raises(click.BadParameter):
            PAIR.convert(text, None, None)


def test_references() -> None:
    assert REF.convert("team/x:v1", None, None) == Ref("team", "x", "v1")
    with pytest.raises(BadRefError, match="not a reference"):
        REF.convert("../x", None, None)
