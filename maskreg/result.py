"""Results: what Python reads as attributes, programs read as JSON under the same names."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from maskreg.bucket import BucketPath
from maskreg.ref import Ref

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxtuple, _SHORT.maxlist, _SHORT.maxdict = 2, 3, 3, 3
_SHORT.maxstring = _SHORT.maxother = 72


class Brief:
    """A dataclass that an interactive session prints in a few lines: long fields are cut, empty ones left out."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # The decorator dataclass replaces an inherited method, and keeps one that the class itself has.
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        shown = ((field.name, getattr(self, field.name)) for field in fields(self) if field.repr)  # type: ignore[arg-type]
        given = ((name, value) for name, value in shown if not _is_empty(value))
        return f"{type(self).__name__}({', '.join(f'{name}={_SHORT.repr(value)}' for name, value in given)})"


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, str | tuple | list | Mapping) and not value)


@dataclass(frozen=True)
class Result(Brief):
    """Base of results: every field is a key of the JSON that the command prints."""

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}


def plain(value: Any) -> object:
    """A value as JSON has it: names, paths and times as text, errors with their facts, sets in order."""
    if isinstance(value, str | Ref | Path | BucketPath):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
