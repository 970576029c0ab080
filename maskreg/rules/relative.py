"""The rule with a relative threshold; below 2^-8 it equals the exact rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maskreg.errors import BadRuleError
from maskreg.rules.base import parse_parameter
from maskreg.rules.exact import Exact

ETA_LIMIT = 2.0**-8


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
        """The rule for ``eta`` given as text.

        Raises:
            BadRuleError: not a number in [0, 2^-8).
        """
        eta = parse_parameter("rel", parameter)
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
