"""The contract of a rule."""

from __future__ import annotations

import math
from typing import Any, Protocol

from maskreg.errors import BadRuleError


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


def parse_parameter(word: str, text: str) -> float:
    """A rule's parameter as a finite number >= 0.

    Raises:
        BadRuleError: it is not one.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise BadRuleError(f"rule {word}: {text!r} is not a number >= 0", hint=f"write it as in {word}:1e-5")
    return value
