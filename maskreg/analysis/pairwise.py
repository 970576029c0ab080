"""Many masks beside each other: a matrix of headrooms, answers that hold for all pairs together, and their order.

Each pair's answer is wrong in up to 5 % of cases, so two wrong answers are expected among 45 pairs. Holm's
correction (Scand. J. Stat. 6, 1979) keeps the chance that any of them is wrong below 5 % under any dependence. It
takes the answers from the surest on, and each has to be surer than the next::

    p of 4 pairs      .0001   .004   .03    .6
    times             4       3      2      1       pairs that are left
    corrected         .0004   .012   .06    .6      the first two stand; the third cannot be told

Masks are ordered so that similar ones are neighbors: the two groups with the largest mean headroom between them become
one, again and again (average linkage), and its ends are turned to each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.analysis.excess import Interval
from maskreg.analysis.verdict import ANSWERS, LEVEL, Outcome, Start, null_sentence
from maskreg.result import plain
from maskreg.words import counted, percent

Floats = npt.NDArray[np.float64]

_ANSWERS = (Outcome.MORE, Outcome.LESS, Outcome.SAME)

CORRECTION = "holm"
"""The correction of answers for the number of pairs."""


@dataclass(frozen=True)
class PairAnswer:
    """Two of many masks.

    Attributes:
        masks: their numbers, the lower first.
        headroom: under the null of the matrix, with the 95 % interval of this pair alone.
        nearest: the null whose headroom is nearest to what would not matter, as the pair's verdict has it; empty where
            none was asked.
        outcome, alone: the answer, corrected for the number of pairs, and as if these were the only two masks.
        p, p_corrected: chance of such an answer where it does not hold, alone and for all pairs together.
        relation: how one follows from the other, or both from a third; empty for masks of their own.
        reason: why it cannot be told; empty for an answer.
    """

    masks: tuple[int, int]
    start: Start
    headroom: float | None
    headroom_interval: Interval | None
    nearest: str
    nearest_headroom: float | None
    outcome: Outcome
    alone: Outcome
    p: float | None
    p_corrected: float | None
    relation: str
    reason: str = ""

    def words(self, null: str) -> str:
        """The answer, and what has to be known beside the headroom under a null: ``cannot tell (alone: more)``."""
        notes = [f"alone: {ANSWERS[self.alone]}"] if self.alone is not self.outcome else []
        if self.alone is Outcome.OPEN and self.nearest not in ("", null):
            notes.append(f"{percent(self.nearest_headroom)} over {self.nearest}")
        notes += [self.relation] if self.relation else []
        return f"{ANSWERS[self.outcome]} ({'; '.join(notes)})" if notes else ANSWERS[self.outcome]


@dataclass(frozen=True)
class PairMatrix:
    """Every pair of many masks, under one null.

    Attributes:
        names: of the masks.
        null: of all headrooms: the strictest that decides about every pair. An answer has to hold under each null
            that decides about its pair, so it can be stricter than the headroom shows.
        smallest: the smallest headroom that matters.
        tested: pairs that the correction counts: all but those that follow from each other, or from their sizes.
        pairs: in the order of the masks.
        order: numbers of the masks, similar ones beside each other.
        with_source: whether the source was at hand, so that an answer can speak of rounding.
    """

    names: tuple[str, ...]
    null: str
    smallest: float
    tested: int
    pairs: tuple[PairAnswer, ...]
    order: tuple[int, ...] = ()
    with_source: bool = True

    @property
    def headrooms(self) -> Floats:
        """float64 ``[masks, masks]``, symmetric; NaN where undefined, and on the diagonal."""
        values = np.full((len(self.names), len(self.names)), np.nan)
        for pair in self.pairs:
            if pair.headroom is not None:
                values[pair.masks] = values[pair.masks[::-1]] = pair.headroom
        return values

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Whether a pair is neither of related masks nor open, bool ``[masks, masks]``."""
        marks = np.zeros((len(self.names), len(self.names)), bool)
        for pair in self.pairs:
            marks[pair.masks] = marks[pair.masks[::-1]] = pair.outcome in _ANSWERS
        return marks

    @property
    def sentence(self) -> str:
        """What the pairs say together."""
        counts = Counter(pair.outcome for pair in self.pairs)
        said = "; ".join(f"{word}: {counts[outcome]:,}" for outcome, word in ANSWERS.items() if counts[outcome])
        cause = "rounding and chance give" if self.with_source else "chance gives"
        return (
            f"More than {cause}? Of {counted(len(self.pairs), 'pair')}, {said}. These answers hold "
            f"for all pairs together, at {percent(LEVEL)} (Holm's correction)."
        )

    @property
    def terms(self) -> str:
        """What all headrooms and answers rest on."""
        starts = Counter(pair.start for pair in self.pairs)
        said = [f"{start} for {counted(count, 'pair')}" for start, count in sorted(starts.items())]
        reasons = Counter(pair.reason for pair in self.pairs if pair.reason)
        terms = (
            f"Headroom is over what is expected of {null_sentence(self.null)} ({self.null}). Training started at the "
            f"source: {', '.join(said) if len(said) > 1 else ''.join(starts)}. A difference matters from "
            f"{percent(self.smallest)} on."
        )
        open_ = (f"Cannot tell about {counted(n, 'pair')}, because {reason}." for reason, n in reasons.most_common())
        return " ".join([terms, *open_])

    def to_json(self) -> dict[str, Any]:
        """Plain values; undefined figures are null."""
        square = [[None if np.isnan(value) else value for value in row] for row in self.headrooms.tolist()]
        return {
            "sentence": self.sentence,
            "null": self.null,
            "smallest": self.smallest,
            "correction": CORRECTION,
            "level": LEVEL,
            "tested": self.tested,
            "order": list(self.order),
            "headrooms": square,
            "answers": [plain(pair) for pair in self.pairs],
        }


def holm(chances: Sequence[float | None], tested: int) -> list[float | None]:
    """Chances that hold for all tests together; None for what was not tested, or without an answer.

    ``tested`` says how many tests there were, those without an answer included.
    """
    corrected: list[float | None] = [None] * len(chances)
    known = sorted((p, number) for number, p in enumerate(chances) if p is not None)
    largest = 0.0
    for before, (p, number) in enumerate(known):
        largest = max(largest, min(1.0, (tested - before) * p))
        corrected[number] = largest
    return corrected


def order_of(similarity: Floats) -> tuple[int, ...]:
    """An order in which similar items are neighbors, by average linkage.

    Similarity is symmetric, float64 ``[n, n]``; NaN counts as 0, and the diagonal does not count.
    """
    known = np.nan_to_num(similarity)
    groups = [[number] for number in range(len(known))]
    between = known.copy()
    np.fill_diagonal(between, -np.inf)
    while len(groups) > 1:
        a, b = sorted(np.unravel_index(int(np.argmax(between)), between.shape))
        sizes = len(groups[a]), len(groups[b])
        merged = (sizes[0] * between[a] + sizes[1] * between[b]) / sum(sizes)
        merged[a] = -np.inf
        between[a], between[:, a] = merged, merged
        between = np.delete(np.delete(between, b, 0), b, 1)
        groups[a] = _joined(groups[a], groups.pop(b), known)
    return tuple(groups[0]) if groups else ()


def _joined(a: list[int], b: list[int], similarity: Floats) -> list[int]:
    """Two groups, turned so that the items where they meet are as similar as can be."""
    ways = product((a, a[::-1]), (b, b[::-1]))
    left, right = max(ways, key=lambda way: similarity[way[0][-1], way[1][0]])
    return left + right
