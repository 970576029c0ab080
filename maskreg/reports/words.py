"""Text of the page: the answer, and which figures and definitions of the glossary it shows."""

from __future__ import annotations

from maskreg.analysis.comparison import PairOverlap
from maskreg.analysis.verdict import Outcome, with_source
from maskreg.glossary import MASKS, OVERLAP
from maskreg.reports.findings import Findings, OtherMask
from maskreg.reports.geometry import STABLE, TOP
from maskreg.words import counted

DEFINITIONS = {**MASKS, **OVERLAP}
"""What the page explains, by anchor."""

KEY = (
    STABLE,
    f"{TOP}1",
    f"{TOP}16",
    "effective_rank",
    "relative_norm",
    "angle_max_u_16",
    "nss",
    "projection_lift_0.10",
)
"""Figures of geometry shown without unfolding the full table."""

MORE, NOT_MORE, OPEN = "more", "not-more", "open"
"""Marks of the answer."""

_NOT_SETTLED = "Not settled"


def answer(findings: Findings) -> tuple[str, str, str]:
    """The mark, the heading and the headline sentence."""
    others = [other for other in findings.others if other.independent]
    marks = [mark_of(other) for other in others]
    if not others:
        told = (
            "One mask alone cannot tell: any small update moves small weights, because bf16 rounds. To see whether "
            "the choice among weights of one magnitude is more than noise, add a mask of another run."
        )
        return OPEN, _NOT_SETTLED, told
    if len(others) == 1 and others[0].outcome is others[0].verdict.outcome:
        return marks[0], heading_of_pair(others[0].overlap), others[0].verdict.sentence
    yes = marks.count(MORE)
    mark = MORE if yes == len(others) else NOT_MORE if set(marks) == {NOT_MORE} else OPEN
    heading = {MORE: "More than rounding", NOT_MORE: "No more than rounding"}.get(mark, _NOT_SETTLED)
    masks = counted(len(others), "mask")
    return mark, heading, f"The overlap is more than rounding against {yes} of {masks} of other runs; details below."


def mark_of(other: OtherMask) -> str:
    """The mark of the overlap with another mask."""
    return mark_of_pair(other.overlap, other.outcome)


def mark_of_pair(pair: PairOverlap, outcome: Outcome | None = None) -> str:
    """The mark of one overlap. Exceeding chance alone leaves it open, because rounding does that too."""
    match outcome or pair.verdict.outcome:
        case Outcome.MORE:
            return MORE if with_source(pair.whole) else OPEN
        case Outcome.LESS | Outcome.SAME:
            return NOT_MORE
    return OPEN


def heading_of_pair(pair: PairOverlap) -> str:
    """The verdict on one overlap in a few words; they agree with the beginning of its sentence."""
    cause = "rounding" if with_source(pair.whole) else "chance"
    match pair.verdict.outcome:
        case Outcome.MORE:
            return f"More than {cause}"
        case Outcome.LESS | Outcome.SAME:
            return f"No more than {cause}"
        case Outcome.RELATED:
            return "No answer"
    return "Cannot tell"
