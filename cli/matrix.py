"""The matrix of ``compare`` of several masks as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from maskreg.words import interval, percent

from .layout import UNLIMITED, folded, paragraph, width
from .table import Row, table

if TYPE_CHECKING:
    from maskreg.analysis.pairwise import PairMatrix

_SQUARE = 12
"""Masks up to which the square is printed in a terminal."""


def matrix(letters: Sequence[str], pairs: PairMatrix, *, verbose: bool) -> list[str]:
    """The square of headrooms, similar masks beside each other, and a line on every pair.

    Args:
        letters: of the masks.
        pairs: the figures.
        verbose: print the square, and fold nothing, however many masks there are.
    """
    lines = paragraph(pairs.terms)
    if verbose or width() >= UNLIMITED or len(letters) <= _SQUARE:
        lines += ["", *_square(letters, pairs)]
    return [*lines, "", *_lines(letters, pairs, verbose=verbose)]


def _square(letters: Sequence[str], pairs: PairMatrix) -> list[str]:
    values = {pair.masks: percent(pair.headroom) for pair in pairs.pairs}
    rows: list[Row] = [("headroom", *(letters[mask] for mask in pairs.order))]
    for row in pairs.order:
        cells = (values[min(row, column), max(row, column)] if row != column else "" for column in pairs.order)
        rows.append((letters[row], *cells))
    return table(rows)


def _lines(letters: Sequence[str], pairs: PairMatrix, *, verbose: bool) -> list[str]:
    named = {" ".join(letters[mask] for mask in pair.masks): pair for pair in pairs.pairs}
    kept, left_out = folded(named, lambda pair: pair.headroom, things="pairs", by="headroom", whole=verbose)
    rows: list[Row] = [("pair", "answer", "headroom", "95 % interval")]
    for name, pair in kept.items():
        rows.append((name, pair.words(pairs.null), percent(pair.headroom), interval(pair.headroom_interval)))
    return [*table(rows, right=2), *left_out]
