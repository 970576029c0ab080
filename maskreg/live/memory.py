"""Tensors as memory: where they are, their bits, and what checkpoints call their dtypes."""

from __future__ import annotations

from collections.abc import Mapping

import torch

DTYPES: Mapping[str, torch.dtype] = {
    "BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64,
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32,
    "I64": torch.int64, "C64": torch.complex64,
}  # fmt: skip
"""By the words that checkpoints have for them."""

CODES: Mapping[int, torch.dtype] = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integers that the bits of elements are read as, by the bytes of an element."""


def place_of(tensor: torch.Tensor) -> tuple[object, ...]:
    """Equal for two tensors that are the same elements of the same memory, in the same order."""
    if tensor.is_meta or hasattr(tensor, "to_local") or not tensor.numel():
        return (id(tensor),)
    return (tensor.device, tensor.data_ptr(), tensor.element_size(), tuple(tensor.shape), tensor.stride())
