"""Plot of density by exponent, with the rounding null."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from maskreg.flow.geometry.exponents import BIAS, ByExponent
from maskreg.reports.theme import Theme, in_percent

WIDTH = 9.0
FEWEST = 1e-4
"""Smallest share of the weights for an exponent to be shown: densities of a handful of weights are noise."""


def shown(exponents: ByExponent) -> tuple[int, int]:
    """Exponent fields ``[first, last]`` of all but a few of the weights."""
    common = np.flatnonzero(exponents.members >= max(1.0, FEWEST * float(exponents.members.sum())))
    return int(common[0]), int(common[-1])


def curve(exponents: ByExponent, theme: Theme) -> Figure:
    """Panels over the exponents: density, difference from the rounding null, share of all weights."""
    first, last = shown(exponents)
    fields = np.arange(first, last + 1)
    fields = fields[exponents.members[fields] > 0]
    members, powers = exponents.members[fields], fields - BIAS
    density = exponents.moved[fields] / members
    expected = None if exponents.expected is None else exponents.expected[fields] / members
    heights = [3.0, 1.3, 1.0] if expected is not None else [3.0, 1.0]
    figure = Figure(figsize=(WIDTH, 1.2 + sum(heights)), layout="constrained")
    panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    above, below = panels[0], panels[-1]
    above.plot(powers, density, label="this mask", color=theme.observed, marker="o", **_LINE)
    if expected is not None:
        above.plot(powers, expected, label=_NULL, color=theme.null, marker="s", linestyle="--", **_LINE)
        panels[1].bar(powers, density - expected, width=0.7, color=theme.observed)
        panels[1].axhline(0, color=theme.null, linewidth=1.4, linestyle="--")
        panels[1].set_ylabel("difference")
    above.set_ylim(-0.03, 1.03)
    above.set_ylabel("density")
    above.legend(loc="lower left")
    below.bar(powers, members / exponents.members.sum(), width=0.7, color=theme.neutral)
    below.set_ylabel("of all weights")
    below.set_xlabel("magnitude of the weight in the source: from this power of two to the next")
    stride = -(-(last - first + 1) // 14)
    ticks = [power for power in range(first - BIAS, last - BIAS + 1) if (power - last + BIAS) % stride == 0]
    below.set_xticks(ticks, [_power(power) for power in ticks])
    for axes in panels:
        axes.yaxis.set_major_formatter(FuncFormatter(in_percent))
        axes.grid(axis="y", linewidth=0.7)
        axes.set_axisbelow(True)
    figure.align_ylabels()
    return figure


_NULL = "rounding alone, as many moved in each tensor"
_LINE: dict[str, Any] = {"markersize": 4.5, "linewidth": 1.7}
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _power(exponent: int) -> str:
    # Field 0 holds zeros and subnormal numbers.
    return "2" + str(exponent).translate(_RAISED) if exponent > -BIAS else "0"
