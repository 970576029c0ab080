"""Other tools' formats for updates and masks, both ways: each is two functions in one file.

:data:`FORMATS` is their table.
"""

from __future__ import annotations

from collections.abc import Mapping

from maskreg.errors import UsageError
from maskreg.exchange import nemo_rl, safetensors_mask, skyrl, slime, sparse
from maskreg.exchange.base import Format

FORMATS: Mapping[str, Format] = {
    module.FORMAT.name: module.FORMAT for module in (slime, skyrl, nemo_rl, sparse, safetensors_mask)
}
"""Every exchange format by name."""


def format_named(name: str) -> Format:
    """The exchange format of this name."""
    if name not in FORMATS:
        raise UsageError(f"unknown format {name!r}", hint=f"choose {', '.join(FORMATS)}")
    return FORMATS[name]


__all__ = ["FORMATS", "Format", "format_named"]
