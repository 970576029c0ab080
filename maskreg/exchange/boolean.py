"""Masks in files that hold one tensor of zeros and ones for each, of any dtype that can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from maskreg.checkpoint.base import Checkpoint
from maskreg.errors import FormatError
from maskreg.exchange.base import BoolSpans
from maskreg.exchange.incoming import tensor_of
from maskreg.tensors.blocks import blocks_of
from maskreg.tensors.dtypes import FLOAT
from maskreg.tensors.info import TensorInfo

if TYPE_CHECKING:
    import numpy.typing as npt

_INTEGERS = ("BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64")
ONES: Mapping[str, int] = {
    **dict.fromkeys(_INTEGERS, 1),
    "BF16": 0x3F80,
    "F16": 0x3C00,
    "F32": 0x3F80_0000,
    "F64": 0x3FF0_0000_0000_0000,
}
"""The bits of 1, by the dtypes that a mask may have."""


def masks_in(file: Checkpoint, source: Checkpoint) -> dict[str, BoolSpans]:
    """What reads the mask of every tensor of a file.

    Args:
        file: an open file; each of its tensors is a mask.
        source: the checkpoint that it belongs to.

    Raises:
        FormatError: a tensor that the source lacks, has in another shape, or that cannot be a mask.
    """
    masks: dict[str, BoolSpans] = {}
    for name, stored in file.tensors.items():
        require_maskable(tensor_of(source, name), stored.shape)
        if stored.dtype not in ONES:
            raise FormatError(f"tensor {name}: {stored.dtype}, which is not a dtype of a mask")
        masks[name] = partial(_spans, file, stored)
    return masks


def require_maskable(info: TensorInfo, shape: tuple[int, ...]) -> None:
    """Refuse a mask that does not fit its tensor.

    Raises:
        FormatError: another shape, or a tensor that cannot have a mask.
    """
    if info.dtype not in FLOAT:
        raise FormatError(f"tensor {info.name}: a mask of {info.dtype}, which is not a floating-point dtype")
    if shape != info.shape:
        raise FormatError(f"tensor {info.name}: a mask of shape {list(shape)}; the source has {list(info.shape)}")


def as_bool(name: str, bits: npt.NDArray[Any], true_bits: int) -> npt.NDArray[np.bool_]:
    """Stored bits as booleans.

    Raises:
        FormatError: a value that is neither 0 nor 1.
    """
    moved: npt.NDArray[np.bool_] = bits == true_bits
    wrong = bits[~moved & (bits != 0)]
    if wrong.size:
        raise FormatError(f"tensor {name}: its mask has a value that is neither 0 nor 1 (bits {int(wrong[0]):#x})")
    return moved


def _spans(file: Checkpoint, stored: TensorInfo) -> Iterator[npt.NDArray[np.bool_]]:
    for start, stop in blocks_of(stored.numel):
        yield as_bool(stored.name, file.read(stored.name, start, stop), ONES[stored.dtype])
