"""The answer in words: is the overlap of two masks more, or less, than rounding alone would produce, and by how much?

Two updates that are independent of the weights and of each other still share coordinates: bf16 rounding lets the
coordinates of one exponent flip equally easily, and small exponents more easily than large ones; rows and columns have
rates of their own; and runs that begin at the same weights off the bf16 grid share what is near the border of its
rounding cell. So several nulls decide (:func:`deciding`), and a verdict has to hold under each of them. Each answers by
the 95 % interval of the headroom, against the smallest effect that would matter, d::

    headroom  -d  0  d
              |   |   |  [====]      more: the interval lies above d, and chance alone is rarer than 1 in 10,000
       [===]  |   |   |              less: it lies below -d
              | [===] |              no difference that matters: it lies between
              |   [=======]          cannot tell

The rounding nulls also predict how many coordinates of each exponent flip. Where a mask has other numbers by exponent,
those nulls describe another mask: they are reported and do not decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from maskreg.analysis.evidence import (
    GLOBAL,
    HIDDEN,
    MATCHED,
    PER_TENSOR,
    ROUNDING,
    ROUNDING_A,
    ROUNDING_B,
    STRIPED,
    OverlapFigures,
)
from maskreg.analysis.excess import FEWEST, Z95, Excess, Interval
from maskreg.words import interval, percent, times

SMALLEST = 0.01
"""The smallest effect that matters by default: 1 % of the headroom."""

RARE = 1e-4
"""How rare an overlap has to be under a null, besides."""

LEVEL = 0.05
"""How often an answer may be given where it does not hold: what a 95 % interval leaves."""

RULE = (
    "more means: under every null that decides, the 95 % interval of the headroom lies above the smallest effect that "
    "matters, and chance gives such an overlap less than once in 10,000 times; less, the same below zero; rows and "
    "columns of a matrix may move together"
)
"""The criterion behind every verdict."""

Start = Literal["yes", "no", "unknown"]
"""Whether the source is what training started from, bit for bit; else its weights were off the bf16 grid."""

_LABELS = {
    GLOBAL: "uniform random",
    PER_TENSOR: "random per tensor",
    MATCHED: "exponent-matched random",
    STRIPED: "the same by row and column",
    HIDDEN: "the same off the grid",
    ROUNDING: "rounding alone in both",
    ROUNDING_A: "rounding alone in {}",
    ROUNDING_B: "rounding alone in {}",
}
_ONE_SIDED = {ROUNDING_A: 0, ROUNDING_B: 1}
_SENTENCES = {
    PER_TENSOR: "random masks with as many coordinates of every tensor",
    GLOBAL: "random masks of the same sizes",
    MATCHED: "random masks with as many coordinates of every exponent",
    STRIPED: "random masks with as many coordinates of every exponent, row and column",
    HIDDEN: "updates that start at the same weights off the bf16 grid",
}


class Outcome(StrEnum):
    """What a verdict says."""

    MORE = "more"
    LESS = "less"
    SAME = "same"
    """No difference that matters."""
    OPEN = "open"
    """It cannot be told."""
    RELATED = "related"
    """The masks are one another's copy, parent or child: their overlap says nothing about training."""


ANSWERS = {
    Outcome.MORE: "more",
    Outcome.LESS: "less",
    Outcome.SAME: "no difference",
    Outcome.OPEN: "cannot tell",
    Outcome.RELATED: "related",
}
"""Outcomes in tables."""


@dataclass(frozen=True)
class Verdict:
    """Whether an overlap is more or less than chance.

    Attributes:
        outcome: the answer.
        null: the null whose headroom is nearest to what would not matter; empty where none was asked.
        headroom: under that null; None where it is undefined.
        headroom_interval: 95 % interval of it.
        smallest: the smallest headroom that matters.
        start: whether the source is taken for what training started from.
        sentence: the answer as text.
        p: chance of such an answer where it does not hold, at most ``LEVEL``: the largest of the nulls that decide.
            None where it cannot be told.
    """

    outcome: Outcome
    null: str
    headroom: float | None
    headroom_interval: Interval | None
    smallest: float
    start: Start
    sentence: str
    p: float | None = None


@dataclass(frozen=True)
class Asked:
    """What a verdict is asked under.

    Attributes:
        smallest: the smallest headroom that matters.
        start: whether the source is what training started from.
        relation: why the masks are alike whatever was trained; empty for masks of their own.
    """

    smallest: float = SMALLEST
    start: Start = "unknown"
    relation: str = ""


def start_of_all(starts: Iterable[Start]) -> Start:
    """Whether training of all masks started at their source: yes if that of each did, no if that of any did not."""
    said = set(starts)
    return "no" if "no" in said else "unknown" if "unknown" in said else "yes"


def null_label(null: str, masks: tuple[str, str] = ("A", "B")) -> str:
    """The label of a null in text about these two masks."""
    return _LABELS[null].format(masks[_ONE_SIDED.get(null, 0)])


def null_sentence(null: str) -> str:
    """What is expected under a null that can decide: ``random masks with as many coordinates of every exponent``."""
    return _SENTENCES[null]


def deciding(figures: OverlapFigures, start: Start) -> tuple[str, ...]:
    """The nulls that a verdict has to hold under: the finest that are defined.

    Args:
        figures: of all tensors.
        start: whether the source is what training started from; then no weight was off the grid.
    """
    with_source = figures.nulls[MATCHED].expected is not None
    asked = (MATCHED, STRIPED, *(() if start == "yes" else (HIDDEN,))) if with_source else (PER_TENSOR, STRIPED)
    return tuple(null for null in asked if figures.nulls[null].expected is not None)


def outcome_of(excess: Excess, smallest: float, both: int) -> Outcome:
    """What one null says.

    Args:
        excess: the overlap beside its expectation.
        smallest: the smallest headroom that matters.
        both: coordinates in both masks.
    """
    interval = _interval_of(excess)
    if interval is None:
        return Outcome.OPEN
    low, high = interval
    if low > smallest and both >= FEWEST and _is_rare(excess.chance_of_more):
        return Outcome.MORE
    if high < -smallest and (excess.expected or 0) >= FEWEST and _is_rare(excess.chance_of_less):
        return Outcome.LESS
    return Outcome.SAME if -smallest <= low and high <= smallest else Outcome.OPEN


def chance_of_error(excess: Excess, outcome: Outcome, smallest: float) -> float | None:
    """How likely one null's answer is where it does not hold: the p value of its interval, and of how rare it is.

    A p value of the interval is that of the border that it must not cross, from both sides as the interval is. How rare
    an overlap has to be is a test of its own, at another level; its chance is scaled to ``LEVEL``.

    Args:
        excess: the overlap beside its expectation.
        outcome: the answer.
        smallest: the smallest headroom that matters.
    """
    interval = _interval_of(excess)
    if interval is None or excess.headroom is None:
        return None
    error = (interval[1] - interval[0]) / (2 * Z95)
    match outcome:
        case Outcome.MORE:
            beyond, rare = excess.headroom - smallest, excess.chance_of_more
        case Outcome.LESS:
            beyond, rare = -smallest - excess.headroom, excess.chance_of_less
        case Outcome.SAME:
            beyond, rare = smallest - abs(excess.headroom), 0.0
        case _:
            return None
    by_interval = math.erfc(beyond / (error * math.sqrt(2))) if error else 0.0
    return min(LEVEL, max(by_interval, LEVEL * (rare or 0.0) / RARE))


def _interval_of(excess: Excess) -> Interval | None:
    """The interval of a headroom; without rows and columns, as if coordinates were independent."""
    if excess.headroom_interval is not None:
        return excess.headroom_interval
    if excess.headroom is None or not excess.deviations:
        return None
    error = Z95 * abs(excess.headroom / excess.deviations)
    return excess.headroom - error, excess.headroom + error


def _is_rare(chance: float | None) -> bool:
    return chance is not None and chance < RARE


def verdict(figures: OverlapFigures, masks: tuple[str, str] = ("A", "B"), asked: Asked = Asked()) -> Verdict:
    """Decide from the figures of everything that was compared.

    Args:
        figures: of all tensors.
        masks: the names of A and B.
        asked: the smallest effect that matters, and what is known of the masks.
    """
    counts, names = figures.counts, " and ".join(masks)

    def answer(outcome: Outcome, null: str, sentence: str, p: float | None = None) -> Verdict:
        excess = figures.nulls[null] if null else Excess()
        size = excess.headroom, excess.headroom_interval
        return Verdict(outcome, null, *size, asked.smallest, asked.start, sentence, p)

    if asked.relation:
        return answer(Outcome.RELATED, "", f"No answer: {asked.relation}, so their overlap says nothing of training.")
    if not counts.most or counts.most == max(0, counts.a + counts.b - counts.numel):
        fixed = f"Cannot tell: the sizes of {names} alone determine how many coordinates they share."
        return answer(Outcome.OPEN, "", fixed)
    nulls = deciding(figures, asked.start)
    if all(not figures.nulls[null].sd for null in nulls):
        full = f"Cannot tell: {names} fill whole exponents, so nothing is left to chance that they could differ from."
        return answer(Outcome.OPEN, nulls[0], full)
    outcomes = {null: outcome_of(figures.nulls[null], asked.smallest, counts.both) for null in nulls}
    outcome = next(iter(outcomes.values())) if len(set(outcomes.values())) == 1 else Outcome.OPEN
    null = min(nulls, key=lambda name: _margin(figures.nulls[name], outcome))
    chances = [chance_of_error(figures.nulls[name], outcome, asked.smallest) for name in nulls]
    p = None if outcome is Outcome.OPEN else max(chance for chance in chances if chance is not None)
    return answer(outcome, null, _sentence(figures, names, outcome, outcomes, null, asked), p)


def _margin(excess: Excess, outcome: Outcome) -> float:
    headroom = excess.headroom or 0.0
    return -headroom if outcome is Outcome.LESS else headroom


def _sentence(
    figures: OverlapFigures, names: str, outcome: Outcome, outcomes: dict[str, Outcome], null: str, asked: Asked
) -> str:
    excess = figures.nulls[null]
    with_source = figures.nulls[MATCHED].expected is not None
    cause = "rounding" if with_source else "chance"
    size = f"{times(excess.ratio)} what is expected of {null_sentence(null)}, {_headroom(excess)}"
    sentence = {
        Outcome.MORE: f"Yes: the overlap of {names} is more than {cause}: {size}.",
        Outcome.LESS: f"No, it is less: the overlap of {names} is less than {cause} gives: {size}.",
        Outcome.SAME: f"No: the overlap of {names} is what {cause} gives: {size}; "
        f"a difference matters from {percent(asked.smallest)} on.",
        Outcome.OPEN: f"Cannot tell whether the overlap of {names} is more than {cause}: {size}"
        f"{_why(outcomes, figures, asked)}.",
    }[outcome]
    if not with_source:
        sentence += " Whether it is more than rounding cannot be said without the source."
    return sentence


def _why(outcomes: dict[str, Outcome], figures: OverlapFigures, asked: Asked) -> str:
    """Why it cannot be told, after the figures of the null with the smallest headroom."""
    on_grid = {outcome for null, outcome in outcomes.items() if null != HIDDEN}
    if HIDDEN in outcomes and len(on_grid) == 1 and Outcome.OPEN not in on_grid:
        excess = figures.nulls[STRIPED if STRIPED in outcomes else MATCHED]
        said = {Outcome.MORE: "it is more", Outcome.LESS: "it is less", Outcome.SAME: "it is not"}[on_grid.pop()]
        doubt = "" if asked.start == "no" else "; say --start yes if it did"
        return f"; if training started at the source, bit for bit, {said}: {_headroom(excess)}{doubt}"
    if figures.counts.both < FEWEST:
        return f"; fewer than {FEWEST} shared coordinates are no evidence"
    return f"; a difference matters from {percent(asked.smallest)} on"


def _headroom(excess: Excess) -> str:
    if excess.headroom is None:
        return "no headroom"
    ends = "" if excess.headroom_interval is None else f" ({interval(excess.headroom_interval)})"
    return f"{percent(excess.headroom)}{ends} of the headroom"
