"""Files beside the weights that can run code on the machine of whoever loads the checkpoint.

Loaders run two kinds of them, when they are told to trust a checkpoint: Python files, and what a JSON document names
under ``auto_map`` or ``custom_pipelines``, which may be a Python file beside it or in any repository of the hub. Chat
templates are no code in this sense: loaders render them in a sandbox.
"""

from __future__ import annotations

from typing import Any

from maskreg.document import parse
from maskreg.errors import DataError
from maskreg.limits import LIMITS, Limits

_KEYS = ("auto_map", "custom_pipelines")
# A key may be written with escapes: "\u0061uto_map". All its characters are below 256.
_SIGNS = (*(key.encode() for key in _KEYS), rb"\u00")


def can_run_code(name: str, data: bytes, known: bytes | None = None, limits: Limits = LIMITS) -> bool:
    """Whether a small file can run code that a file of the same name does not run already.

    Args:
        name: the file's name.
        data: its content.
        known: content of the file of this name that is trusted, such as the source's own; None when there is none.
        limits: bounds on what is parsed.
    """
    if data == known:
        return False
    if name.lower().endswith(".py"):
        return True
    if not name.lower().endswith(".json"):
        return False
    named = _named(data, limits)
    return bool(named) and (known is None or named != _named(known, limits))


def _named(data: bytes, limits: Limits) -> list[Any]:
    """What a JSON document names as code; the document itself when it cannot be parsed and might."""
    if not any(sign in data for sign in _SIGNS):
        return []
    try:
        return list(_values(parse(data, "a small file", max_bytes=limits.small_file_bytes)))
    except DataError:
        # Other parsers take more than this one: a key twice, NaN.
        return [data]


def _values(value: Any) -> list[Any]:
    if isinstance(value, dict):
        own = [item for key, item in value.items() if key in _KEYS and item]
        return own + [name for item in value.values() for name in _values(item)]
    return [name for item in value for name in _values(item)] if isinstance(value, list) else []
