"""Classes of bf16 codes, and which masks of a tensor rounding alone could have made.

A bf16 code flips when an update takes the weight out of its rounding cell. How wide that is depends on the exponent
alone, and on whether the mantissa is 0: below a power of two numbers are twice as dense as above. So these are the
classes of weights that rounding treats alike; :mod:`maskreg.mask.flips` has their chances.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.native import library
from maskreg.rules import parse_rule

CLASSES = 512
"""Classes of codes: twice the exponent field, plus 1 where the mantissa is 0."""

FINITE_CLASSES = 510
"""Classes below this are of finite numbers; infinities and NaNs never move."""


def classes_of(codes: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
    """Class of each bf16 code, uint16 ``[n]``, below 512."""
    classes = np.empty(codes.shape, np.uint16)
    if compiled := library():
        compiled.lib.maskreg_classify_codes(compiled.read(codes), codes.size, compiled.write(classes))
    else:
        classes[...] = codes >> 6 & 0x1FE | (codes & 0x7F == 0)
    return classes


def why_no_scale(members: npt.NDArray[np.int64], nnz: int) -> str:
    """Why no noise explains the mask of a tensor; empty when some does.

    Args:
        members: int64 ``[512]``, coordinates by class.
        nnz: how many moved.
    """
    finite = int(members[:FINITE_CLASSES].sum())
    if nnz == 0:
        return "nothing moved"
    if nnz == members.sum():
        return "everything moved"
    if nnz > finite:
        return f"{nnz:,} moved, but only {finite:,} are finite, and noise moves no others"
    return ""


def hidden_flips(rule: str) -> str:
    """Why there is no rounding null under a rule that drops small changes; empty for the other rules."""
    return "" if parse_rule(rule).keeps_target else f"rule {rule} hides flips, especially those of small weights"


def off_grid(dtype: str) -> str:
    """Why there is no rounding null for a source that is not stored in bf16."""
    return (
        f"the source is stored in {dtype}: training did not start on the bf16 grid, so a code does not tell how far it "
        "is from flipping"
    )
