"""The table of checkpoint formats."""

from __future__ import annotations

from collections.abc import Mapping

from maskreg.bucket import Location
from maskreg.checkpoint.adapter import ADAPTER
from maskreg.checkpoint.base import Format
from maskreg.checkpoint.dcp import DCP
from maskreg.checkpoint.fsdp import FSDP
from maskreg.checkpoint.safetensors import SAFETENSORS
from maskreg.checkpoint.torch_files import TORCH

FORMATS: Mapping[str, Format] = {known.name: known for known in (SAFETENSORS, ADAPTER, DCP, FSDP, TORCH)}
"""Every format by name; the first that recognizes a path opens it."""


def format_of(path: Location) -> Format:
    """The format of a file or directory that exists; safetensors, which says what is missing, for an unknown one."""
    return next((known for known in FORMATS.values() if known.recognize(path)), SAFETENSORS)
