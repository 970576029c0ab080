"""The table of checkpoint formats."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from maskreg.checkpoint.base import Format
from maskreg.checkpoint.safetensors import SAFETENSORS

FORMATS: Mapping[str, Format] = {known.name: known for known in (SAFETENSORS,)}
"""Every format by name; the first that recognizes a path opens it."""


def format_of(path: Path) -> Format:
    """The format of a file or directory that exists; safetensors, which says what is missing, for an unknown one."""
    return next((known for known in FORMATS.values() if known.recognize(path)), SAFETENSORS)
