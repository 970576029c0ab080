from __future__ import annotations

import math

import pytest

from maskreg.train.runs.request import SHAPES, rate


@pytest.mark.parametrize("shape", SHAPES)
def test_warmup_rises_to_the_full_rate(shape: str) -> None:
    found = [rate(shape, 2.0, step=step, steps=20, warmup=4) for step in range(5)]
    assert found == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0])


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("constant", [1, 1, 1, 1]),
        ("linear", [1, 0.75, 0.5, 0.25]),
        ("cosine", [(1 + math.cos(math.pi * share)) / 2 for share in (0, 0.25, 0.5, 0.75)]),
    ],
)
def test_shapes(shape: str, expected: list[float]) -> None:
    assert [rate(shape, 1.0, step=step, steps=4) for step in range(4)] == pytest.approx(expected)


def test_a_run_of_nothing_but_warmup() -> None:
    assert [rate("linear", 1.0, step=step, steps=2, warmup=2) for step in range(2)] == [0.5, 1.0]
