"""What the format's own library makes of a file."""

from __future__ import annotations

import safetensors


def upstream_tensors(file: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Name to dtype, shape and data."""
    tensors = safetensors.deserialize(file)  # type: ignore[no-untyped-call]
    return {name: (item["dtype"], tuple(item["shape"]), bytes(item["data"])) for name, item in tensors}
