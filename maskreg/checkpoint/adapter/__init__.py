"""LoRA adapters of PEFT, read as the model that merging them into their base model gives."""

from __future__ import annotations

from maskreg.bucket import Location
from maskreg.checkpoint.adapter.opening import open_path
from maskreg.checkpoint.base import Format
from maskreg.checkpoint.layouts import ADAPTER_CONFIG, is_adapter


def recognize(path: Location) -> bool:
    """Whether a directory holds an adapter and its configuration, and no whole model."""
    return path.is_dir() and is_adapter(path)


ADAPTER = Format(
    name="adapter",
    accepts=f"a LoRA adapter ({ADAPTER_CONFIG} and its weights)",
    recognize=recognize,
    open=open_path,
)
"""The line of the table of formats."""

__all__ = ["ADAPTER"]
