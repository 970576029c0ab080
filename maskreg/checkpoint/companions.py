"""Files beside the weights: the small ones that travel with a checkpoint, and weights that never do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import attrgetter

from maskreg.bucket import Location
from maskreg.errors import FormatError, LimitError
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.names import shown

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
    """Refuse a file that may not be written beside a checkpoint.

    Args:
        name: from outside.
        size: in bytes.
        limits: the largest small file.

    Raises:
        FormatError: a file of this name does not travel with a checkpoint.
        LimitError: it is too large.
    """
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
    """Names in a directory that are never copied, in order; those of folders end in ``/``.

    Args:
        directory: the checkpoint's.
        own: file names of the weights that are read, and of their index.
        limits: the size above which a small file is not copied.
    """
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
