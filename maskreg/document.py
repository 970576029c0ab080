"""JSON documents: one canonical form to write, one suspicious way to read."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from maskreg.errors import FormatError, LimitError
from maskreg.limits import LIMITS


def canonical(value: Any) -> bytes:
    """The one byte form of a JSON value: sorted keys, no spaces, UTF-8, no NaN.

    Raises:
        ValueError: the value holds a NaN or an infinity.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def parse(data: bytes, what: str, *, max_bytes: int, max_depth: int = LIMITS.json_depth) -> Any:
    """Parse one JSON document from outside.

    Args:
        data: the document, UTF-8.
        what: how a message names it, such as ``manifest.json``.
        max_bytes: refuse anything longer before parsing.
        max_depth: refuse deeper nesting before parsing.

    Raises:
        LimitError: too long or too deep.
        FormatError: not UTF-8, not JSON, a key twice in one object, NaN, a number beyond every float, or half of
            a character: what :func:`canonical` could not write again.
    """
    if len(data) > max_bytes:
        raise LimitError(f"{what}: {len(data)} bytes; the limit is {max_bytes}")
    _check_depth(data, what, max_depth)
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_float=_finite
        )
        if _SURROGATE.search(data):
            canonical(value)
        return value
    except (UnicodeDecodeError, ValueError) as error:
        raise FormatError(f"{what}: not a well-formed JSON document ({error})") from error


def parse_object(data: bytes, what: str, *, max_bytes: int, max_depth: int = LIMITS.json_depth) -> dict[str, Any]:
    """Like :func:`parse`, for a document that must be a JSON object.

    Raises:
        LimitError: too long or too deep.
        FormatError: anything but one well-formed object.
    """
    value = parse(data, what, max_bytes=max_bytes, max_depth=max_depth)
    if not isinstance(value, dict):
        raise FormatError(f"{what}: a JSON object was expected")
    return value


# Maybe half of a character; two of them in the right order are fine.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# A whole string, so that brackets inside it do not count, or one bracket.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


def _check_depth(data: bytes, what: str, max_depth: int) -> None:
    # The parser recurses, so the depth has to be known before it runs.
    depth = 0
    for token in _TOKEN.finditer(data):
        byte = data[token.start()]
        if byte in b"[{":
            depth += 1
            if depth > max_depth:
                raise LimitError(f"{what}: nested deeper than {max_depth}")
        elif byte in b"]}":
            depth -= 1


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key!r} appears twice")
        found[key] = value
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is beyond every float")
    return number


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
