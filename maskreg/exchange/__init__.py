"""Other tools' formats for updates and masks, both ways: each is two functions in one file.

:data:`FORMATS` is their table.
"""

from __future__ import annotations

from collections.abc import Mapping

from maskreg.errors import UsageError
from maskreg.exchange import (
    safetensors_mask,
    shira,
    slime,
    sparse_safetensors,
    torch_masks,
    vllm,
    zarr_bool,
)
from maskreg.exchange.base import Format

FORMATS: Mapping[str, Format] = {
    module.FORMAT.name: module.FORMAT
    for module in (
        slime,
        vllm,
        sparse_safetensors,
        shira,
        torch_masks,
        safetensors_mask,
        zarr_bool,
    )
}
"""Every exchange format by name."""


def format_named(name: str) -> Format:
    """An exchange format.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in FORMATS:
        raise UsageError(f"unknown format {name!r}", hint=f"choose {', '.join(FORMATS)}")
    return FORMATS[name]


__all__ = ["FORMATS", "Format", "format_named"]
