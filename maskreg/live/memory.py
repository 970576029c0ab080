"""Tensors as memory: their storage, their bits, and dtypes by the names that checkpoints use."""

from __future__ import annotations

from collections.abc import Mapping

import torch

DTYPES: Mapping[str, torch.dtype] = {
    "BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64,
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32,
    "I64": torch.int64, "C64": torch.complex64,
}  # fmt: skip
"""By their names in checkpoints."""

CODES: Mapping[int, torch.dtype] = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers of the same width, to read the bits of elements; by the bytes of an element."""


def storage_key(tensor: torch.Tensor) -> tuple[object, ...]:
    """A key that is equal for two tensors of the same elements of the same memory, in the same order."""
    if tensor.is_meta or hasattr(tensor, "to_local") or not tensor.numel():
        return (id(tensor),)
    return (tensor.device, tensor.data_ptr(), tensor.element_size(), tuple(tensor.shape), tensor.stride())
