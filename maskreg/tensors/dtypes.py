"""Dtypes by their safetensors codes: widths, and which of them can have masks and deltas."""

from __future__ import annotations

ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
"""Bytes of one element, by safetensors dtype code."""

HALF = frozenset({"BF16", "F16"})
"""16-bit floating point: deltas are between tensors of one of these."""

WIDE = frozenset({"F32", "F64"})
"""Wider floating point: cast to bf16 before it is compared."""

FLOAT = HALF | WIDE
"""Every dtype that can have a mask."""
