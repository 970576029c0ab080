"""The answer in words: is the overlap of two masks more, or less, than rounding alone would produce, and by how much?

Two updates that are independent of the weights and of each other still share coordinates: bf16 rounding lets the
coordinates of one exponent flip equally easily, and small exponents more easily than large ones; rows and columns have
rates of their own. So several nulls decide (:func:`deciding`), and a verdict has to hold under each of them. Each
answers by the 95 % interval of the headroom, against the smallest effect that would matter, d::

    headroom  -d  0  d
              |   |   |  [====]      more: the interval lies above d, and chance alone is rarer than 1 in 10,000
       [===]  |   |   |              less: it lies below -d
              | [===] |              no difference that matters: it lies between
              |   [=======]          cannot tell

Within a run, after resuming, and from fp32 masters, the weights behind the bf16 codes lie off the bf16 grid. Two runs
that begin at the same ones share how near each weight is to the border of its rounding cell, which its code does not
show. How much that adds depends on the sizes of their steps, but there is a limit. Let s and t be the chances that the
steps of A and of B, of the sizes that they have at one weight, leave a cell over all places in it. Up or down is even
odds in one of the runs at least, and independent of the other's. Steps to one side leave from the same places, and
those to opposite sides from opposite ones::

    P(both flip) = (min(s, t) + max(0, s + t - 1)) / 2        max(0, s + t - 1) <= s t <= min(s, t)

So for sizes of any law, which can depend on the weight, the overlap is at least halfway between what is expected
without that, the sum of all s t, and the smallest of masks of these sizes, and at most halfway to the largest: what the
start explains is at most half of the headroom, ``HIDDEN``. Steps of one size reach that where few coordinates flip;
Gaussian ones reach 29 %. Where the start is not known to lie on the grid, a verdict has to hold beyond it.

The rounding nulls also predict how many coordinates of each exponent flip. Where a mask has other numbers by exponent,
those nulls describe another mask: they are reported and do not decide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from maskreg.analysis.evidence import (
    GLOBAL,
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
"""How often an answer can be given where it does not hold: what a 95 % interval leaves."""

HIDDEN = 0.5
"""The largest share of the headroom that a common start off the bf16 grid explains."""

RULE = (
    "more means: under every null that decides, the 95 % interval of the headroom lies above the smallest effect that "
    "matters, and chance gives such an overlap less than once in 10,000 times; less, the same below zero; rows and "
    "columns of a matrix can move together; half of the headroom counts as chance unless one of the runs is known to "
    "have started at the source, bit for bit"
)
"""The criterion behind every verdict."""

Start = Literal["yes", "no", "unknown"]
"""Whether the source is what training started from, bit for bit; else its weights were off the bf16 grid."""

_LABELS = {
    GLOBAL: "uniform random",
    PER_TENSOR: "random per tensor",
    MATCHED: "exponent-matched random",
    STRIPED: "the same by row and column",
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
        null: the null whose headroom is nearest to what would not matter; empty where none was asked.
        headroom, headroom_interval: under that null; None where it is undefined.
        smallest: the smallest headroom that matters.
        start: whether the source is taken for what training of one of them started from.
        sentence: the answer as text.
        reason: why it cannot be told; empty for an answer.
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
    reason: str = ""
    p: float | None = None


@dataclass(frozen=True)
class Asked:
    """What a verdict is asked under.

    Attributes:
        smallest: the smallest headroom that matters.
        start: whether the source is what training of one of them started from.
        relation: why the masks are alike for another reason than training; empty for masks of their own.
    """

    smallest: float = SMALLEST
    start: Start = "unknown"
    relation: str = ""


def start_of_pair(a: Start, b: Start) -> Start:
    """Whether two runs can share what lies off the grid: one that started on it shares nothing ("yes")."""
    return "yes" if "yes" in (a, b) else "no" if "no" in (a, b) else "unknown"


def null_label(null: str, masks: tuple[str, str] = ("A", "B")) -> str:
    """The label of a null in text about these two masks."""
    return _LABELS[null].format(masks[_ONE_SIDED.get(null, 0)])


def null_sentence(null: str) -> str:
    """What is expected under a null that can decide: ``random masks with as many coordinates of every exponent``."""
    return _SENTENCES[null]


def deciding(figures: OverlapFigures) -> tuple[str, ...]:
    """The nulls that a verdict has to hold under: the finest that are defined."""
    asked = (MATCHED if with_source(figures) else PER_TENSOR, STRIPED)
    return tuple(null for null in asked if figures.nulls[null].expected is not None)


def with_source(figures: OverlapFigures) -> bool:
    """Whether exponents were known, so that the verdict is about rounding, not about chance alone."""
    return figures.nulls[MATCHED].expected is not None


def outcome_of(excess: Excess, smallest: float, both: int, explained: float = 0.0) -> Outcome:
    """What one null says. Of the headroom that the start does not explain, ``smallest`` matters."""
    interval = _interval_of(excess)
    if interval is None:
        return Outcome.OPEN
    (low, high), border = interval, explained + (1 - explained) * smallest
    if low > border and both >= FEWEST and _chance(excess, Outcome.MORE, explained) < RARE:
        return Outcome.MORE
    if high < -border and (excess.expected or 0) >= FEWEST and _chance(excess, Outcome.LESS, explained) < RARE:
        return Outcome.LESS
    return Outcome.SAME if -smallest <= low and high <= smallest else Outcome.OPEN


def chance_of_error(excess: Excess, outcome: Outcome, smallest: float, explained: float = 0.0) -> float | None:
    """How likely one null's answer is where it does not hold: the p value of its interval, and of how rare it is.

    The p value belongs to the border that the interval must not cross; it is two-sided, as the interval is. How rare an
    overlap has to be is a test of its own, at another level; its chance is scaled to ``LEVEL``.
    """
    interval = _interval_of(excess)
    if interval is None or excess.headroom is None or outcome not in (Outcome.MORE, Outcome.LESS, Outcome.SAME):
        return None
    size, rare = abs(excess.headroom), 0.0
    beyond = smallest - size
    if outcome is not Outcome.SAME:
        beyond, rare = size - explained - (1 - explained) * smallest, _chance(excess, outcome, explained)
    return min(LEVEL, max(2 * _tail(beyond, interval), LEVEL * rare / RARE))


def _chance(excess: Excess, outcome: Outcome, explained: float) -> float:
    """Chance of such an overlap, or one further from what is expected, where the start explains that share."""
    by_null = excess.chance_of_more if outcome is Outcome.MORE else excess.chance_of_less
    interval = _interval_of(excess)
    assert interval is not None
    beyond = abs(excess.headroom or 0.0) - explained
    return max(1.0 if by_null is None else by_null, _tail(beyond, interval) if explained else 0.0)


def _tail(beyond: float, interval: Interval) -> float:
    """Chance of a headroom that lies as far beyond a border, by the width of its interval."""
    error = (interval[1] - interval[0]) / (2 * Z95)
    return math.erfc(beyond / (error * math.sqrt(2))) / 2 if error else float(beyond <= 0)


def _interval_of(excess: Excess) -> Interval | None:
    """The interval of a headroom; without rows and columns, as if coordinates were independent."""
    if excess.headroom_interval is not None:
        return excess.headroom_interval
    if excess.headroom is None or not excess.deviations:
        return None
    error = Z95 * abs(excess.headroom / excess.deviations)
    return excess.headroom - error, excess.headroom + error


def verdict(figures: OverlapFigures, masks: tuple[str, str] = ("A", "B"), asked: Asked = Asked()) -> Verdict:
    """Decide from the figures of everything that was compared."""
    counts, names = figures.counts, " and ".join(masks)

    def answer(outcome: Outcome, null: str, sentence: str, reason: str = "", p: float | None = None) -> Verdict:
        excess = figures.nulls[null] if null else Excess()
        size = excess.headroom, excess.headroom_interval
        return Verdict(outcome, null, *size, asked.smallest, asked.start, sentence, reason, p)

    if asked.relation:
        return answer(Outcome.RELATED, "", f"No answer: {asked.relation}, so their overlap says nothing of training.")
    nulls = deciding(figures)
    fixed = not counts.most or counts.most == max(0, counts.a + counts.b - counts.numel)
    if fixed or all(not figures.nulls[null].sd for null in nulls):
        reason = "both masks fill whole exponents, so nothing is left to chance that they could differ from"
        if fixed:
            reason = "the sizes of both masks alone determine how many coordinates they share"
        return answer(Outcome.OPEN, "" if fixed else nulls[0], f"Cannot tell, because {reason}.", reason)
    explained = explained_share(figures, asked)
    outcomes = _outcomes(figures, asked.smallest, explained)
    outcome = _agreed(outcomes)
    null = min(nulls, key=lambda name: _margin(figures.nulls[name], outcome))
    reason = "" if outcome is not Outcome.OPEN else _reason(figures, asked.smallest)
    chances = [chance_of_error(figures.nulls[name], outcome, asked.smallest, explained) for name in nulls]
    p = None if reason else max(chance for chance in chances if chance is not None)
    return answer(outcome, null, _sentence(figures, names, outcome, null, reason, asked), reason, p)


def explained_share(figures: OverlapFigures, asked: Asked) -> float:
    """The share of the headroom that a start off the grid can explain: 0 where a run is known to start on it."""
    return HIDDEN if with_source(figures) and asked.start != "yes" else 0.0


def _outcomes(figures: OverlapFigures, smallest: float, explained: float) -> dict[str, Outcome]:
    both = figures.counts.both
    return {null: outcome_of(figures.nulls[null], smallest, both, explained) for null in deciding(figures)}


def _agreed(outcomes: Mapping[str, Outcome]) -> Outcome:
    first, *others = outcomes.values()
    return first if all(other is first for other in others) else Outcome.OPEN


def _margin(excess: Excess, outcome: Outcome) -> float:
    headroom = excess.headroom or 0.0
    return -headroom if outcome is Outcome.LESS else headroom


_SAYS = {
    Outcome.MORE: "it is more",
    Outcome.LESS: "it is less",
    Outcome.SAME: "there is no difference that matters",
    Outcome.OPEN: "it cannot be told",
}


def _reason(figures: OverlapFigures, smallest: float) -> str:
    """Why it cannot be told, and what would settle it."""
    on_grid = _outcomes(figures, smallest, 0.0)
    if (agreed := _agreed(on_grid)) is not Outcome.OPEN:
        return (
            "runs that begin at the same weights between bf16 numbers can differ from chance by up to half of the "
            f"headroom; if training of one of them began at the source, bit for bit, {_SAYS[agreed]}"
        )
    if figures.counts.both < FEWEST:
        return f"fewer than {FEWEST} shared coordinates are no evidence"
    if len(set(on_grid.values())) > 1:
        return " and ".join(f"over {null_label(null)} {_SAYS[outcome]}" for null, outcome in on_grid.items())
    excess = figures.nulls[next(iter(on_grid))]
    ends = _interval_of(excess)
    if ends is None:
        return "these masks leave no room between what is expected and what they can share"
    if ends[0] > smallest or ends[1] < -smallest:
        return f"chance gives such an overlap more often than once in {1 / RARE:,.0f} times"
    return (
        f"the 95 % interval holds differences that matter, which begin at {percent(smallest)}, and others that do not"
    )


def _sentence(figures: OverlapFigures, names: str, outcome: Outcome, null: str, reason: str, asked: Asked) -> str:
    excess = figures.nulls[null]
    cause = "rounding" if with_source(figures) else "chance"
    size = f"{times(excess.ratio)} what is expected of {null_sentence(null)}, {_headroom(excess)}"
    beyond = (
        ", of which a start off the bf16 grid can explain no more than half" if explained_share(figures, asked) else ""
    )
    sentence = {
        Outcome.MORE: f"Yes: the overlap of {names} is more than {cause}: {size}{beyond}.",
        Outcome.LESS: f"No, it is less: the overlap of {names} is less than {cause} gives: {size}{beyond}.",
        Outcome.SAME: f"No: the overlap of {names} is what {cause} gives: {size}; "
        f"a difference matters from {percent(asked.smallest)} on.",
        Outcome.OPEN: f"Cannot tell whether the overlap of {names} is more than {cause}, because {reason}. It is "
        f"{size}.",
    }[outcome]
    if cause == "chance":
        sentence += " Whether it is more than rounding cannot be said without the source."
    return sentence


def _headroom(excess: Excess) -> str:
    if excess.headroom is None:
        return "no headroom"
    ends = "" if excess.headroom_interval is None else f" ({interval(excess.headroom_interval)})"
    return f"{percent(excess.headroom)}{ends} of the headroom"
