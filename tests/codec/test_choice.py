"""Sparse blocks are tried where few coordinates move, and tokens too where rows or columns say more."""

from __future__ import annotations

import numpy as np
import pytest

from maskreg.codec import FLAT, Grid
from maskreg.codec.choice import Choice, choose
from maskreg.codec.layout import CODED, SPARSE, Head
from maskreg.codec.step1 import Step1
from tests.codec.samples import Codes, moved

LARGE = 600_000


def embedding(rows: int, width: int, share: float) -> tuple[Codes, Codes]:
    """A matrix of which a share of the rows moves, and the others not at all."""
    source, target = moved(rows * width, 0.5, 1)
    still = np.random.default_rng(2).random(rows) >= share
    target.reshape(rows, width)[still] = source.reshape(rows, width)[still]
    return source, target


@pytest.mark.parametrize(
    ("n", "share", "expected"),
    [
        (LARGE, 0.01, Choice(sparse=True, tokens=False)),
        (LARGE, 0.06, Choice()),
        (LARGE, 0.5, Choice()),
        (10_000, 0.01, Choice(sparse=True, tokens=False)),
        (10_000, 0.06, Choice(sparse=True, tokens=True)),
        (10_000, 0.5, Choice()),
        (1, 1.0, Choice()),
    ],
)
def test_by_how_many_move(n: int, share: float, expected: Choice) -> None:
    source, target = moved(n, share, 3, farthest=1)
    assert choose(source, target, FLAT) == expected


def test_movers_after_a_beginning_without_any_are_seen() -> None:
    source, target = moved(LARGE, 1.0, 4)
    target[:300_000] = source[:300_000]
    assert not choose(source, target, FLAT).sparse


def test_rows_that_do_not_move_are_said_by_scales() -> None:
    source, target = embedding(2_000, 300, 0.02)
    assert choose(source, target, Grid(300, 0)) == Choice(sparse=True, tokens=True, lines=True)
    block = Step1().encode(source, target, Grid(300, 0))
    assert Head.read(block).kind == CODED
    assert len(block) < 0.9 * len(Step1().encode(source, target))


def test_rows_that_move_alike_are_not_worth_scales() -> None:
    source, target = moved(LARGE, 0.02, 5)
    assert choose(source, target, Grid(300, 0)) == Choice(sparse=True, tokens=False)
    assert Head.read(Step1().encode(source, target, Grid(300, 0))).kind == SPARSE
