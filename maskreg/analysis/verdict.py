"""The answer in words: is the overlap of two masks more than rounding makes of any two updates?

Updates that know nothing of the weights, and of each other, flip the coordinates of one exponent alike. So whatever
their sizes, their masks share what masks do that are drawn at random within each exponent of each tensor: that is what
the answer goes by. A rounding null says what noise of one size would do; where a mask has other numbers by exponent
than that noise gives, it describes another mask, and stands beside the answer without deciding it.
"""

from __future__ import annotations

from dataclasses import dataclass

from maskreg.analysis.evidence import GLOBAL, MATCHED, PER_TENSOR, ROUNDING, ROUNDING_A, ROUNDING_B, Figures

DEVIATIONS = 5.0
"""Standard deviations of the null by which an overlap must exceed it to count as more."""

RULE = (
    f"more means: by over {DEVIATIONS:g} standard deviations of random masks with as many coordinates of every tensor "
    "and exponent; without the source, of every tensor"
)
"""The rule behind every answer."""

_NAMES = {
    GLOBAL: "uniform random",
    PER_TENSOR: "random per tensor",
    MATCHED: "exponent-matched random",
    ROUNDING: "rounding alone in both",
    ROUNDING_A: "rounding alone in {}",
    ROUNDING_B: "rounding alone in {}",
}
_ONE_SIDED = {ROUNDING_A: 0, ROUNDING_B: 1}


@dataclass(frozen=True)
class Verdict:
    """Whether an overlap is more than chance.

    Attributes:
        more: it exceeds the finest random null at hand; None when there is nothing to tell it by.
        null: that null; empty when there is nothing to tell.
        sentence: for people.
    """

    more: bool | None
    null: str
    sentence: str


def name_of(null: str, masks: tuple[str, str] = ("A", "B")) -> str:
    """What a null is called in a sentence about these two masks."""
    return _NAMES[null].format(masks[_ONE_SIDED.get(null, 0)])


def verdict(figures: Figures, masks: tuple[str, str] = ("A", "B")) -> Verdict:
    """Answer from the figures of a comparison.

    Args:
        figures: of everything that was compared.
        masks: what the two are called.
    """
    table, two = figures.table, " and ".join(masks)
    if not table.most or table.most == max(0, table.a + table.b - table.numel):
        why = "masks of these sizes can share one number of coordinates only"
        return Verdict(None, "", f"There is nothing to tell of {two}: {why}.")
    null = next(name for name in (MATCHED, PER_TENSOR, GLOBAL) if figures.nulls[name].expected is not None)
    found = figures.nulls[null]
    expected, sd = found.expected or 0.0, found.sd or 0.0
    # Sums of floats lose a little, also where chance has no spread.
    more = table.both - expected > max(DEVIATIONS * sd, 1e-9 * expected)
    asked = "rounding" if null == MATCHED else "chance"
    size = "-" if found.ratio is None else three(found.ratio)
    left = "" if found.headroom is None else f", {three(100 * found.headroom)} % of the headroom"
    answer = "Yes" if more else "No"
    than = "more than" if more else "not more than"
    sentence = (
        f"{answer}: the overlap of {two} is {than} {asked}: {size} times what {name_of(null, masks)} expects{left} "
        f"({RULE})."
    )
    if asked == "chance":
        sentence += " Whether it is more than rounding cannot be said without the source."
    return Verdict(more, null, sentence)


def three(value: float) -> str:
    """A number with three significant digits."""
    return f"{value:#.3g}".rstrip(".")
