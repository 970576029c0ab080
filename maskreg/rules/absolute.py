"""The rule with an absolute threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maskreg.rules.base import parse_parameter


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
        """The rule for ``tau`` given as text.

        Raises:
            BadRuleError: not a finite number >= 0.
        """
        return cls(parse_parameter("abs", parameter))

    @property
    def name(self) -> str:
        """``abs:`` and tau."""
        return f"abs:{self.tau!r}"

    def moved(self, source: Any, target: Any) -> Any:
        """Which coordinates moved."""
        # Whoever only reads the name of a rule needs no arrays.
        import numpy as np

        from maskreg.tensors.cast import is_finite, to_fp32

        finite = is_finite(source) & is_finite(target)
        with np.errstate(over="ignore", invalid="ignore"):  # the largest numbers; pairs masked out below
            # Both libraries round the Python number to fp32 for this comparison.
            far = abs(to_fp32(target) - to_fp32(source)) > self.tau
        return (finite & far) | (~finite & (source != target))
