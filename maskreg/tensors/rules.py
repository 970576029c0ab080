"""Rules: what counts as moved between two bf16 codes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from maskreg.errors import BadRuleError

MAGNITUDE = 0x7FFF

ETA_LIMIT = 2.0**-8


class Rule(Protocol):
    """Decides which coordinates moved. Symmetric in its two sides.

    ``moved`` takes bf16 codes, as numpy uint16 or as torch int16 on any device, and gives booleans of the
    same kind and shape.
    """

    @property
    def name(self) -> str:
        """The rule as text that ``parse_rule`` reads back."""

    @property
    def keeps_target(self) -> bool:
        """Whether a delta under this rule gives the target's bytes."""

    def moved(self, source: Any, target: Any) -> Any:
        """Which coordinates moved from ``source`` to ``target``."""


@dataclass(frozen=True)
class Exact:
    """Moved when the codes differ; -0.0 and +0.0 are equal, and a NaN equals only its own bits.

    For finite numbers this is ``b(w1) != b(w0)``, rule R1 of "The Path Not Taken" (arXiv 2511.08567) and of
    "On the Geometry of OPD" (arXiv 2606.07082).
    """

    name: str = "exact"
    keeps_target: bool = True

    @classmethod
    def parse(cls, parameter: str) -> Exact:
        """The rule; it takes no parameter."""
        if parameter:
            fault = f"rule exact takes no parameter, not {parameter!r}"
            raise BadRuleError(fault, hint="leave it out", options={"rule": "exact"})
        return cls()

    def moved(self, source: Any, target: Any) -> Any:
        """Which coordinates moved."""
        return (source != target) & (((source | target) & MAGNITUDE) != 0)


@dataclass(frozen=True)
class Absolute:
    """Moved when ``|b(w1) - b(w0)| > tau``, the difference taken in fp32.

    Used with tau = 1e-5 by "RL Finetunes Small Subnetworks" (arXiv 2505.11711) and "Dense Supervision, Sparse
    Updates" (arXiv 2606.13657). It hides single ULP steps of weights below 2^-9, so a delta under it does not
    give the target. Where either side is NaN or infinite, moved means different bits.
    """

    tau: float
    keeps_target: bool = False

    @classmethod
    def parse(cls, parameter: str) -> Absolute:
        """The rule for ``tau`` given as text, a finite number >= 0."""
        return cls(_number("abs", parameter))

    @property
    def name(self) -> str:
        """``abs:`` and tau."""
        return f"abs:{self.tau!r}"

    def moved(self, source: Any, target: Any) -> Any:
        """Which coordinates moved."""
        # A caller that only reads the name of a rule needs no arrays.
        import numpy as np

        from maskreg.tensors.cast import is_finite, to_fp32

        finite = is_finite(source) & is_finite(target)
        with np.errstate(over="ignore", invalid="ignore"):  # the largest numbers; pairs masked out below
            # Both libraries round the Python number to fp32 for this comparison.
            far = abs(to_fp32(target) - to_fp32(source)) > self.tau
        return (finite & far) | (~finite & (source != target))


@dataclass(frozen=True)
class Relative:
    """Moved when ``|b(w1) - b(w0)| > eta * max(|b(w0)|, |b(w1)|)``, for ``eta < 2^-8``.

    Neighboring bf16 numbers lie at least 2^-8 apart relative to the larger one, so every such eta gives the
    exact rule's mask ("The Path Not Taken", arXiv 2511.08567, definition 2.1 and proposition E.3); checked over
    all neighbors in the tests. An eta of 2^-8 or more would call some neighbors equal, so it is refused.
    """

    eta: float
    keeps_target: bool = True

    @classmethod
    def parse(cls, parameter: str) -> Relative:
        """The rule for ``eta`` given as text, a number in [0, 2^-8)."""
        eta = _number("rel", parameter)
        if eta >= ETA_LIMIT:
            raise BadRuleError(
                f"rule rel:{parameter}: eta must be below 2^-8 = {ETA_LIMIT}",
                hint="bf16 cannot show smaller steps; use rel:1e-3, or abs:TAU for a coarser mask",
            )
        return cls(eta)

    @property
    def name(self) -> str:
        """``rel:`` and eta."""
        return f"rel:{self.eta!r}"

    def moved(self, source: Any, target: Any) -> Any:
        """Which coordinates moved."""
        return Exact().moved(source, target)


def _number(word: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise BadRuleError(f"rule {word}: {text!r} is not a number >= 0", hint=f"write it as in {word}:1e-5")
    return value


RULES: dict[str, Callable[[str], Rule]] = {
    "exact": Exact.parse,
    "abs": Absolute.parse,
    "rel": Relative.parse,
}
"""Parser of the parameter, by the word before the colon."""


def parse_rule(text: str) -> Rule:
    """The rule named ``exact``, ``abs:TAU`` or ``rel:ETA``."""
    word, _, parameter = text.partition(":")
    if word not in RULES:
        raise BadRuleError(
            f"{text!r} is not a rule", hint="use exact, abs:TAU (as in abs:1e-5) or rel:ETA (as in rel:1e-3)"
        )
    return RULES[word](parameter)
