"""Results: what Python reads as attributes, programs read as JSON under the same names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from maskreg.bucket import BucketPath
from maskreg.errors import MaskregError
from maskreg.ref import Ref


@dataclass(frozen=True)
class Result:
    """Base of results: every field is a key of the JSON that the command prints."""

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}


def plain(value: Any) -> object:
    """A value as JSON has it: names, paths and times as text, errors as their message, sets in order."""
    if isinstance(value, str | Ref | Path | BucketPath):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, MaskregError):
        return value.message
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
