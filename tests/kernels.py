"""Which builds of the kernels this run tests: all that this machine can use, or the one that is named."""

from __future__ import annotations

import os

from maskreg.native import NUMPY, available

VARIABLE = "MASKREG_KERNELS"

NAMED = os.environ.get(VARIABLE, "")

KERNELS = (NAMED,) if NAMED else available()
"""The builds; ``numpy`` stands for none."""

COMPILED = tuple(name for name in KERNELS if name != NUMPY)
"""Those that are compiled; none where the kernels are switched off."""
