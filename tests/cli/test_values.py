"""Option values that are more than a word."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import click
import pytest
from maskreg_cli.values import DURATION, PAIR, RANGE, REF, SHARE, WEIGHT

from maskreg.errors import BadRefError
from maskreg.ref import Ref

INF = math.inf

VALUES: list[tuple[click.ParamType, str, Any]] = [  # type: ignore[type-arg] # generic in newer versions only
    *((RANGE, "0.4..0.6", (0.4, 0.6)), (RANGE, "0.4..", (0.4, INF)), (RANGE, "..0.6", (-INF, 0.6))),
    *((RANGE, "0.5", (0.5, 0.5)), (RANGE, "1e-3..2", (0.001, 2.0))),
    *((DURATION, "7d", timedelta(7)), (DURATION, "12h", timedelta(hours=12)), (DURATION, "0s", timedelta(0))),
    *((DURATION, "2w", timedelta(14)), (DURATION, "5200w", timedelta(36400))),
    *((PAIR, "lr=a=b", ("lr", "a=b")), (PAIR, "seed=", ("seed", "")), (WEIGHT, "a:b=0.5", ("a:b", 0.5))),
    *((SHARE, "5%", 0.05), (SHARE, "0.01", 0.01), (REF, "team/x:v1", Ref("team", "x", "v1"))),
]
WRONG = [
    *((RANGE, text) for text in ("", "..", "0.6..0.4", "a..b", "0.4...0.6", "nan..1", "nan", "0.4-0.6")),
    *((DURATION, text) for text in ("7", "d", "-1d", "1.5h", "7 d", "99999999d", "999999w", "\u0663d")),
    *((PAIR, text) for text in ("seed", "=1", "")),
    *((WEIGHT, text) for text in ("two", "two=nan", "two=x")),
    *((SHARE, text) for text in ("-1%", "100%", "nan", "x")),
]


@pytest.mark.parametrize(("kind", "text", "value"), VALUES)
def test_a_value_is_parsed(kind: Any, text: str, value: object) -> None:
    assert kind.convert(text, None, None) == value
    assert kind.convert(value, None, None) == value


@pytest.mark.parametrize(("kind", "text"), WRONG)
def test_what_is_none_is_refused(kind: Any, text: str) -> None:
    with pytest.raises(click.BadParameter):
        kind.convert(text, None, None)


def test_what_names_no_artifact_is_an_error_of_its_own() -> None:
    with pytest.raises(BadRefError):
        REF.convert("../x", None, None)
