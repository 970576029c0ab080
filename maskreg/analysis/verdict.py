"""The answer in words: is the overlap of two masks more than rounding alone would produce?

Two updates that are independent of the weights and of each other still share coordinates: bf16 rounding lets the
coordinates of one exponent flip equally easily, and small exponents more easily than large ones. Whatever their sizes,
the masks of such updates overlap like masks drawn at random within each exponent of each tensor. The verdict therefore
tests against that null (``exponent-matched``). The rounding null also predicts how many coordinates of each exponent
flip. Where a mask has other numbers by exponent, that null describes another mask: it is reported and does not decide.
"""

from __future__ import annotations

from dataclasses import dataclass

from maskreg.analysis.evidence import GLOBAL, MATCHED, PER_TENSOR, ROUNDING, ROUNDING_A, ROUNDING_B, OverlapFigures
from maskreg.words import percent, times

DEVIATIONS = 5.0
"""Standard deviations of the null by which an overlap must exceed it to count as more."""

RULE = (
    f"more means: by over {DEVIATIONS:g} standard deviations of random masks with as many coordinates of every tensor "
    "and exponent; without the source, of every tensor"
)
"""The criterion behind every verdict."""

_LABELS = {
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
        more: it exceeds the finest random null that is defined; None when the masks' sizes fix their overlap.
        null: that null; empty when ``more`` is None.
        sentence: the answer as text.
    """

    more: bool | None
    null: str
    sentence: str

    @property
    def answer(self) -> str:
        """The sentence without the rule that it is judged by."""
        return self.sentence.replace(f" ({RULE})", "")


def null_label(null: str, masks: tuple[str, str] = ("A", "B")) -> str:
    """The label of a null in text about these two masks."""
    return _LABELS[null].format(masks[_ONE_SIDED.get(null, 0)])


def verdict(figures: OverlapFigures, masks: tuple[str, str] = ("A", "B")) -> Verdict:
    """Decide from the figures of everything that was compared.

    Example: 5,000 of 10,000 coordinates in each mask, in one stratum. 2,500 are expected in both with a standard
    deviation of 25, so 2,626 in both is more than chance and 2,625 is not.

    Args:
        figures: of all tensors.
        masks: the names of A and B.
    """
    counts, names = figures.counts, " and ".join(masks)
    if not counts.most or counts.most == max(0, counts.a + counts.b - counts.numel):
        return Verdict(None, "", f"No answer for {names}: their sizes alone determine how many coordinates they share.")
    null = next(name for name in (MATCHED, PER_TENSOR, GLOBAL) if figures.nulls[name].expected is not None)
    excess = figures.nulls[null]
    expected, sd = excess.expected or 0.0, excess.sd or 0.0
    # The relative margin absorbs the rounding error of float sums where the null has no variance.
    more = counts.both - expected > max(DEVIATIONS * sd, 1e-9 * expected)
    cause = "rounding" if null == MATCHED else "chance"
    headroom = "" if excess.headroom is None else f", {percent(excess.headroom)} of the headroom"
    sentence = (
        f"{'Yes' if more else 'No'}: the overlap of {names} is {'' if more else 'not '}more than {cause}: "
        f"{times(excess.ratio)} what {null_label(null, masks)} expects{headroom} ({RULE})."
    )
    if cause == "chance":
        sentence += " Whether it is more than rounding cannot be said without the source."
    return Verdict(more, null, sentence)
