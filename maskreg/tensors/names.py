"""Which names tensors may have."""

from __future__ import annotations

import re

from maskreg.errors import FormatError, LimitError
from maskreg.limits import LIMITS, Limits

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_name(name: str, document: str, limits: Limits = LIMITS) -> None:
    """Refuse a tensor name that could break a message, a table or a document.

    Any other name is fine, ``../../etc/x`` too: names are data, and never become paths.

    Args:
        name: of a tensor, from outside.
        document: names the source in messages, such as ``tensors.json``.
        limits: the longest name.

    Raises:
        FormatError: empty, with control characters, or not Unicode.
        LimitError: too long.
    """
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise FormatError(f"{document}: a tensor name that is not Unicode: {shown(name)}") from error
    if size > limits.name_bytes:
        raise LimitError(f"{document}: a tensor name of {size} bytes; the limit is {limits.name_bytes}")
    if not name or _CONTROL.search(name):
        raise FormatError(f"{document}: a tensor name that is empty or has control characters: {shown(name)}")


def shown(value: object) -> str:
    """Any value from outside in printable ASCII, cut to a length that fits a message."""
    return ascii(value)[:80]
