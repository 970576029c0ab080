"""JSON documents: one canonical form to write, one suspicious way to read.

A digest is taken over a document's bytes, so equal values must give equal bytes on every machine. ``json`` writes
floats as the shortest text that reads back the same, so only key order, spaces and escapes have to be fixed::

    {"b": 1.50, "a": "é"}   ->   {"a":"é","b":1.5}

What is read must be what would be written again: keys that appear twice, NaN, numbers beyond every float and lone
surrogates are refused, though Python's parser takes them. The tensor table has too many values for that, and goes
through :func:`decoded`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Lock
from typing import Any, TypeVar

from maskreg.errors import FormatError, LimitError
from maskreg.limits import LIMITS

StructT = TypeVar("StructT")


def canonical(value: Any) -> bytes:
    """The one byte form of a JSON value: sorted keys, no spaces, UTF-8, no NaN."""
    return _ENCODER.encode(value).encode()


def parse(
    data: bytes, name: str, *, max_bytes: int, max_depth: int = LIMITS.json_depth, max_values: int = LIMITS.json_values
) -> Any:
    """Parse one JSON document from outside.

    In memory a value takes up to thirty times the bytes that it has in a document. So values are counted before they
    are parsed, by the commas and opening brackets, of which each value but the first follows one. Those within texts
    count too: a limit is several times what real documents have.
    """
    if len(data) > max_bytes:
        raise LimitError(f"{name}: {len(data)} bytes; the limit is {max_bytes}")
    if sum(map(data.count, (b",", b"[", b"{"))) > max_values:
        raise LimitError(f"{name}: more than {max_values} values")
    _check_depth(data, name, max_depth)
    try:
        value = DECODER.decode(data.decode())
        if _SURROGATE.search(data):
            canonical(value)
        return value
    except (UnicodeDecodeError, ValueError) as error:
        raise FormatError(f"{name}: not a well-formed JSON document ({error})") from error


def parse_object(
    data: bytes, name: str, *, max_bytes: int, max_depth: int = LIMITS.json_depth, max_values: int = LIMITS.json_values
) -> dict[str, Any]:
    """Parse a document that must be a JSON object; see :func:`parse`."""
    value = parse(data, name, max_bytes=max_bytes, max_depth=max_depth, max_values=max_values)
    if not isinstance(value, dict):
        raise FormatError(f"{name}: expected a JSON object")
    return value


# An escaped surrogate: half of a character beyond 16 bits. A pair in the right order is fine, which only writing the
# value again can tell, so this cheap search decides whether to.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# A whole string, so that brackets inside it do not count, or one bracket. A hostile document of quotes and backslashes
# takes linear time: the possessive *+ never backtracks, and a string without an end goes to the document's end, where
# it would otherwise be sought again from each quote within it.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


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
        raise ValueError(f"{text} is no finite number")
    return number


# Made once: a tensor table has thousands of rows, and making one takes longer than reading a row.
DECODER = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_finite, parse_float=_finite)
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _text(kind: type, value: object) -> str:
    # A kind of text that checks itself, such as a digest.
    if not issubclass(kind, str) or not isinstance(value, str):
        raise ValueError(f"not {kind.__name__}")
    return kind(value)


# msgspec 0.22 shows other threads what it knows of a type while it is still finding it out, and they follow a null
# pointer. So the first use of every type runs alone.
_FIRST_USE = Lock()
_USED: set[type] = set()


def checked(struct: type[StructT], value: object, document: str) -> StructT:
    """A parsed document as a struct of msgspec or a dataclass: names, types and bounds checked.

    Nothing is converted but texts that stand for a time or a digest, where the struct has one.
    """
    import msgspec

    with _refusing(struct, document):
        return msgspec.convert(value, struct, dec_hook=_text)  # noqa: TID251 - the place for it


def decoded(struct: type[StructT], data: bytes, document: str) -> StructT:
    """The same from a document's bytes, without its values in between: for one with many values.

    Unknown keys are skipped with all that they hold. A repeated key has its last value.
    """
    import msgspec

    with _refusing(struct, document):
        return msgspec.json.decode(data, type=struct)


@contextmanager
def _refusing(struct: type, document: str) -> Iterator[None]:
    import msgspec

    try:
        with nullcontext() if struct in _USED else _FIRST_USE:
            yield
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # Expected `int`, got `str` - at `$.totals.nnz`
        reason, _, at = str(error).partition(" - at `$")
        field = at.strip("`.")
        raise FormatError(f"{document}: {field}: {reason}" if field else f"{document}: {reason}") from error
    finally:
        _USED.add(struct)
