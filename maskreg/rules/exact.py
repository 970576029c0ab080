"""The default rule: the integer comparison of bf16 codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maskreg.errors import BadRuleError

MAGNITUDE = 0x7FFF


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
        """The rule; it takes no parameter.

        Raises:
            BadRuleError: a parameter was given.
        """
        if parameter:
            raise BadRuleError(f"rule exact takes no parameter, not {parameter!r}", hint="write --rule exact")
        return cls()

    def moved(self, source: Any, target: Any) -> Any:
        """Which coordinates moved."""
        return (source != target) & (((source | target) & MAGNITUDE) != 0)
