"""Files beside the weights: the small ones that travel with a checkpoint, and weights that never do.

Some can run code on the machine that loads the checkpoint. Loaders run two kinds, when they are told to trust it:
Python files, and what a JSON document names under ``auto_map`` or ``custom_pipelines``, which may be a Python file
beside it or in any repository of the hub. Chat templates are no code in this sense: loaders render them in a sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from maskreg.bucket import Location
from maskreg.document import parse
from maskreg.errors import DataError, FormatError, LimitError
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.info import shown

SMALL_FILES = ("*.json", "*.txt", "*.jinja", "*.model", "*.tiktoken", "*.py")
"""Patterns of configuration, tokenizer and code files; licenses travel too."""

_SMALL = re.compile(r".+\.(json|txt|jinja|model|tiktoken|py)|(licen[sc]e|notice|copying)([._-].*)?", re.I)
_WEIGHTS = re.compile(
    r"consolidated.*|.+\.index\.json|.+\.(safetensors|bin|pt|pth|ckpt|distcp|gguf|ggml|h5|msgpack|onnx|npz)", re.I
)
# Where hub models keep their weights in other formats.
_WEIGHT_FOLDERS = {"original", "onnx", "gguf", "metal"}
_UNCLEAN = re.compile(r"[\x00-\x1f\x7f-\x9f/\\]")


def is_plain_name(name: str) -> bool:
    """Whether ``name`` stays in its directory and is not hidden: no slash, no leading dot, no control character."""
    return bool(name) and not name.startswith(".") and not _UNCLEAN.search(name)


def is_small_file(name: str) -> bool:
    """Whether a file of this name travels with a checkpoint: configuration, tokenizer, code, license."""
    return is_plain_name(name) and not _WEIGHTS.fullmatch(name) and bool(_SMALL.fullmatch(name))


def check_small_file(name: str, size: int, limits: Limits = LIMITS) -> None:
    """Refuse a file that may not be written beside a checkpoint."""
    if not is_small_file(name):
        raise FormatError(f"not a file that travels with a checkpoint: {shown(name)}")
    if size > limits.small_file_bytes:
        raise LimitError(f"{name}: {size} bytes; the limit is {limits.small_file_bytes}")


def _entries(directory: Location) -> list[Location]:
    return sorted(directory.iterdir(), key=attrgetter("name"))


def small_files(directory: Location, limits: Limits = LIMITS) -> Mapping[str, Location]:
    """The small files of a checkpoint's directory by name, in name order; links are followed."""
    return {
        path.name: path
        for path in _entries(directory)
        if is_small_file(path.name) and path.is_file() and path.stat().st_size <= limits.small_file_bytes
    }


def other_weights(directory: Location, own: frozenset[str], limits: Limits = LIMITS) -> tuple[str, ...]:
    """Names in a directory that are never copied, in order; names of folders end in ``/``."""
    names = []
    for path in _entries(directory):
        name = path.name
        if path.is_dir():
            if name in _WEIGHT_FOLDERS:
                names.append(f"{name}/")
        elif name in own:
            continue
        elif _WEIGHTS.fullmatch(name) or (
            is_small_file(name) and path.is_file() and path.stat().st_size > limits.small_file_bytes
        ):
            names.append(name)
    return tuple(names)


_KEYS = ("auto_map", "custom_pipelines")
# A key may be written with escapes: "\u0061uto_map". All its characters are below 256.
_SIGNS = (*(key.encode() for key in _KEYS), rb"\u00")


def can_run_code(name: str, data: bytes, known: bytes | None = None, limits: Limits = LIMITS) -> bool:
    """Whether a small file can run code that a file of the same name does not run already."""
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
