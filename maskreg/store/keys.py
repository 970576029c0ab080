"""Clean keys: the only texts that become paths or object names."""

from __future__ import annotations

import re

from maskreg.errors import UsageError

TEMPORARY = ".tmp"
"""A store's own folder; no key begins with it."""

PRIVATE = ".private"
"""The folder of a home's private keys, which no store reads, writes or lists."""

_MAX_KEY_BYTES = 1_024
_MAX_SEGMENT_BYTES = 255
# The control characters are these in every version of Unicode.
_UNCLEAN = re.compile(r"[\\\x00-\x1f\x7f-\x9f]")


def check_key(key: str) -> str:
    """Return ``key`` when it is clean."""
    fault = _fault(key)
    if fault:
        raise UsageError(f"{key!r} is not a key: {fault}")
    return key


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` when it is empty, or a clean key and a slash."""
    if prefix:
        if not prefix.endswith("/"):
            raise UsageError(f"{prefix!r} is not a prefix: it must end with '/'")
        check_key(prefix[:-1])
    return prefix


def is_clean(key: str) -> bool:
    """Whether ``check_key`` would accept ``key``."""
    return not _fault(key)


def _fault(key: str) -> str:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "it is not UTF-8"
    segments = key.split("/")
    # A listing asks for each of its keys: most are short.
    is_long = size > _MAX_SEGMENT_BYTES
    if is_long and (size > _MAX_KEY_BYTES or any(len(s.encode()) > _MAX_SEGMENT_BYTES for s in segments)):
        return f"it is longer than {_MAX_KEY_BYTES} bytes, or a segment is longer than {_MAX_SEGMENT_BYTES}"
    if not key or not {"", ".", ".."}.isdisjoint(segments):
        return "a segment is empty, '.' or '..'"
    if _UNCLEAN.search(key):
        return "it has a backslash or a control character"
    if segments[0] == TEMPORARY:
        return f"{TEMPORARY}/ belongs to the store"
    if segments[0].casefold() == PRIVATE:
        return f"{PRIVATE}/ is not of the store"
    return ""
