"""Documents that carry the sha256 of their own content, so that damage shows where no manifest lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maskreg.digest import Digest
from maskreg.document import canonical, parse_object
from maskreg.errors import CorruptError, FormatError
from maskreg.extras import upgrade_command

SEAL = "seal"
"""Key of the sha256 over the canonical bytes of all other keys."""


def payload(row: Mapping[str, object]) -> bytes:
    """Canonical bytes of a document without its seal: what the seal is over."""
    return canonical({key: value for key, value in row.items() if key != SEAL})


def sealed(row: Mapping[str, object]) -> bytes:
    """Canonical bytes of a document with its seal; one that it has already is replaced."""
    return canonical({**row, SEAL: Digest.of(payload(row))})


def parse_sealed(data: bytes, key: str, *, schema: str, max_bytes: int) -> dict[str, Any]:
    """Parse what :func:`sealed` wrote.

    Args:
        data: the document.
        key: where it is, for messages.
        schema: the schema that it has to name.
        max_bytes: refuse anything longer.

    Raises:
        CorruptError: its bytes do not match its seal.
        FormatError, LimitError: not such a document, or one of another schema.
    """
    row = parse_object(data, key, max_bytes=max_bytes)
    if sealed(row) != data:
        raise CorruptError(key, "its bytes do not match its seal")
    if row.get("schema") != schema:
        raise FormatError(f"{key}: schema {row.get('schema')!r} is not {schema!r}", hint=upgrade_command())
    return row
