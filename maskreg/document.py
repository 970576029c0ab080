"""JSON documents: one canonical form to write, one suspicious way to read.

A digest is taken over a document's bytes, so equal values must give equal bytes on every machine. ``json`` writes
floats as the shortest text that reads back the same, so only key order, spaces and escapes have to be fixed::

    {"b": 1.50, "a": "é"}   ->   {"a":"é","b":1.5}

What is read must be what would be written again: keys that appear twice, NaN, numbers beyond every float and lone
surrogates are refused, though Python's parser takes them.
"""

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


def parse(data: bytes, name: str, *, max_bytes: int, max_depth: int = LIMITS.json_depth) -> Any:
    """Parse one JSON document from outside.

    Args:
        data: the document, UTF-8.
        name: what messages call it, such as ``manifest.json``.
        max_bytes: refuse anything longer before parsing.
        max_depth: refuse deeper nesting before parsing.

    Raises:
        LimitError: too long or too deep.
        FormatError: not UTF-8, not JSON, or a value that :func:`canonical` could not write again: a key twice in one
            object, NaN, a number beyond every float, a lone surrogate.
    """
    if len(data) > max_bytes:
        raise LimitError(f"{name}: {len(data)} bytes; the limit is {max_bytes}")
    _check_depth(data, name, max_depth)
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_float=_finite
        )
        if _SURROGATE.search(data):
            canonical(value)
        return value
    except (UnicodeDecodeError, ValueError) as error:
        raise FormatError(f"{name}: not a well-formed JSON document ({error})") from error


def parse_object(data: bytes, name: str, *, max_bytes: int, max_depth: int = LIMITS.json_depth) -> dict[str, Any]:
    """Parse a document that must be a JSON object; see :func:`parse`.

    Raises:
        LimitError: too long or too deep.
        FormatError: not one well-formed object.
    """
    value = parse(data, name, max_bytes=max_bytes, max_depth=max_depth)
    if not isinstance(value, dict):
        raise FormatError(f"{name}: expected a JSON object")
    return value


# An escaped surrogate: half of a character beyond 16 bits. A pair in the right order is fine, which only writing the
# value again can tell, so this cheap search decides whether to.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# A whole string, so that brackets inside it do not count, or one bracket. A hostile document of quotes and backslashes
# takes linear time: the possessive *+ never backtracks, and a string without an end goes to the document's end, where
# it would otherwise be sought again from each quote within it.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


def _check_depth(data: bytes, name: str, max_depth: int) -> None:
    # The parser recurses once a level and would overflow the stack, so the depth has to be known before it runs:
    #     for each token outside strings: [ or { adds one, ] or } takes one away
    # A document that does not balance passes here, and the parser refuses it.
    if data.count(b"[") + data.count(b"{") <= max_depth:
        return
    depth = 0
    for token in _TOKEN.finditer(data):
        byte = data[token.start()]
        if byte in b"[{":
            depth += 1
            if depth > max_depth:
                raise LimitError(f"{name}: nested deeper than {max_depth}")
        elif byte in b"]}":
            depth -= 1


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"key {key!r} appears twice")
        result[key] = value
    return result


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is beyond every float")
    return number


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
