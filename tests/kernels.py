"""Which builds of the kernels this run tests: all that this machine can use, or the one that is named."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from maskreg.native import available, using

VARIABLE = "MASKREG_KERNELS"

NAMED = os.environ.get(VARIABLE, "")

KERNELS = (NAMED,) if NAMED else available()
"""The builds, slowest first."""


def agreed(compute: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    """What every build computes: arrays and numbers, the same bits in all of them."""
    results = []
    for name in KERNELS:
        with using(name):
            results.append(compute())
    for other in results[1:]:
        assert len(other) == len(results[0])
        assert all(map(np.array_equal, other, results[0]))
    return results[0]
