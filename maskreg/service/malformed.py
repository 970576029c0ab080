"""What is wrong with a request, said to a person: from the words of pydantic to one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SENTENCES = {
    "extra_forbidden": "{name} is not known here",
    "string_too_long": "{name} has more than {max_length} characters",
    "too_long": "{name} has more than {max_length} items",
    "too_short": "{name} has fewer items than {min_length}",
    "greater_than_equal": "{name} has to be at least {ge}",
    "greater_than": "{name} has to be more than {gt}",
    "less_than_equal": "{name} has to be at most {le}",
    "less_than": "{name} has to be less than {lt}",
    "finite_number": "{name} has to be a finite number",
    "literal_error": "{name} has to be one of {expected}",
    "enum": "{name} has to be one of {expected}",
    "timezone_aware": "{name} needs a time zone, as in 2026-11-23T09:00:00Z",
    "value_error": "{name}: {error}",
    "union_tag_not_found": "{discriminator} is missing from {name}",
    "union_tag_invalid": "{discriminator} has to be one of {expected_tags}",
}
"""Sentence by kind of error; ``name`` is what is wrong, the rest comes with the error."""

_KINDS = {
    "string": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "an object",
    "model": "an object",
    "date": "a time, as in 2026-11-23T09:00:00Z",
    "datetime": "a time, as in 2026-11-23T09:00:00Z",
}
"""What it has to be, by the first word of the kind of error, as in ``int_parsing``."""

_WHOLE = {"body": "the body", "query": "the query", "path": "the address", "header": "the headers"}


def sentence(error: Mapping[str, Any]) -> str:
    """One error of a validation as a sentence without its full stop.

    Args:
        error: as ``RequestValidationError.errors()`` lists it.
    """
    where, *parts = (str(part) for part in error["loc"])
    kind, facts = str(error["type"]), error.get("ctx", {})
    name = ".".join(parts) or _WHOLE.get(where, where)
    if kind == "missing":
        return f"{name} is missing"
    if kind == "string_too_short":
        return f"{name} is empty" if facts["min_length"] == 1 else f"{name} is shorter than {facts['min_length']}"
    if kind == "string_pattern_mismatch":
        is_digest = "sha256:" in facts["pattern"]
        return f"{name} has to be a digest, sha256: and 64 hex digits" if is_digest else f"{name} is malformed"
    if kind in _SENTENCES:
        return _SENTENCES[kind].format(name=name, **{key: _plain(value) for key, value in facts.items()})
    if needed := _KINDS.get(kind.partition("_")[0]):
        return f"{name} has to be {needed}"
    message = str(error["msg"])
    return f"{name}: {message[:1].lower()}{message[1:]}"


def _plain(value: object) -> str:
    # Names come quoted, and unquoted they read as what is to be typed. The empty text is what leaving it out means.
    return str(value).replace("'', ", "").replace("'", "")
