"""The null ladder, the one picture of an overlap: what two masks share, across a rung for each null, as SVG.

All is a share of the smaller mask, so that 100 % is one mask within the other::

    uniform random          o                              |
    exponent-matched                      =o=~~~~~~~~      |       o what the null expects
    row and column                          =o=~~~~~~~     |       = 95 % of the masks that follow the null
                            |              |               |       ~ what a start off the bf16 grid can explain
                           40 %           70 %        observed

Beyond the marks of each null that decides, the overlap is more than chance. Places are percentages of the width, so one
picture fits every screen, and letters keep their size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from maskreg.analysis.comparison import PairOverlap
from maskreg.analysis.excess import Z95
from maskreg.analysis.verdict import deciding, explained_share, null_label
from maskreg.words import percent

NOTE = (
    "A dot is what a null expects, and its bar holds 95 % of the masks under it. Bold nulls decide. A pale bar is "
    "what a start off the bf16 grid can explain."
)
"""What is to be read in a ladder."""

_TOP, _RUNG = 26, 38
_INSET = 3

_LADDER = Markup(
    '<svg class="ladder" width="100%" height="{}" role="img" aria-label="{}">{}'
    '<text class="seen" x="{}" y="14" text-anchor="{}">{}</text></svg>'
)
_SEEN = Markup('<line class="seen" x1="{0}" x2="{0}" y1="20" y2="{1}"/>')
_TICK = Markup(
    '<line class="rail" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/><text x="{0}" y="{3}" text-anchor="middle">{4}</text>'
)
_DECIDES = Markup(' class="decides"')
_STEP = Markup(
    '<g{}><text x="0" y="{name_y}">{name} {figure}</text>'
    '<line class="rail" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
    '<line class="explained" x1="{share}" x2="{explained}" y1="{y}" y2="{y}"/>'
    '<line class="spread" x1="{low}" x2="{high}" y1="{y}" y2="{y}"/><circle cx="{share}" cy="{y}" r="4"/></g>'
)


@dataclass(frozen=True)
class Rung:
    """A null on the axis; shares of the smaller mask.

    Attributes:
        low, high: where 95 % of the masks that follow the null lie.
        explained: how far a start off the grid can lead from it; the share itself where nothing has to be explained.
    """

    null: str
    share: float
    low: float
    high: float
    explained: float
    decides: bool


def rungs(pair: PairOverlap) -> tuple[Rung, ...]:
    """The nulls that are defined, in the order of the table of nulls; none for an empty mask."""
    figures, counts = pair.whole, pair.whole.counts
    if not counts.most:
        return ()
    made, decide = [], deciding(figures)
    for null, over in figures.nulls.items():
        if over.expected is None:
            continue
        spread = Z95 * (over.standard_error or over.sd or 0.0)
        bound = counts.most if counts.both >= over.expected else max(0, counts.a + counts.b - counts.numel)
        reach = explained_share(figures, pair.asked) * (bound - over.expected) if null in decide else 0.0
        places = (over.expected, over.expected - spread, over.expected + spread, over.expected + reach)
        share, low, high, explained = (min(max(place / counts.most, 0.0), 1.0) for place in places)
        made.append(Rung(null, share, low, high, explained, null in decide))
    return tuple(made)


def ladder(pair: PairOverlap) -> Markup:
    """The ladder as an element of a page whose style includes ``ladder.css``; empty for an empty mask."""
    steps, counts = rungs(pair), pair.whole.counts
    if not steps:
        return Markup()
    observed, bottom = counts.both / counts.most, _TOP + _RUNG * len(steps)
    low, high = ends_of(steps, observed)

    def x(share: float) -> str:
        return f"{_INSET + (100 - 2 * _INSET) * (share - low) / (high - low):.2f}%"

    place, seen = (observed - low) / (high - low), f"observed {percent(observed)}"
    anchor = "end" if place > 0.8 else "start" if place < 0.2 else "middle"
    parts = [_SEEN.format(x(observed), bottom)]
    parts += [_drawn(rung, _TOP + _RUNG * number, x) for number, rung in enumerate(steps)]
    parts += [_TICK.format(x(tick), bottom, bottom + 6, bottom + 20, percent(tick)) for tick in _ticks(low, high)]
    expected = ", ".join(f"{null_label(rung.null)} {percent(rung.share)}" for rung in steps)
    label = f"Share of the smaller mask that lies in both: {seen}; expected: {expected}."
    return _LADDER.format(bottom + 26, label, Markup().join(parts), x(observed), anchor, seen)


def _drawn(rung: Rung, top: int, x: Callable[[float], str]) -> Markup:
    places = {name: x(getattr(rung, name)) for name in ("share", "low", "high", "explained")}
    texts = {"name": null_label(rung.null), "figure": percent(rung.share)}
    return _STEP.format(_DECIDES if rung.decides else "", y=top + 26, name_y=top + 15, **texts, **places)


def ends_of(steps: Sequence[Rung], observed: float) -> tuple[float, float]:
    """Where the axis begins and ends."""
    places = [observed, *(place for rung in steps for place in (rung.low, rung.high, rung.explained))]
    low, high = min(places), max(places)
    room = max(high - low, 1e-3)
    # The maximum is shown where it does not press all else together.
    return max(0.0, low - room / 8), 1.0 if 1 - low < 4 * room else min(1.0, high + room / 8)


def _ticks(low: float, high: float) -> Iterator[float]:
    unit = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(unit * times for times in (1, 2, 5, 10) if (high - low) / (unit * times) <= 5)
    return (step * number for number in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1))
