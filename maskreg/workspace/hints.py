"""Names in hints: an error that says ``<name>`` says the names that the use case at hand has looked up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from maskreg.errors import MaskregError
from maskreg.ref import Ref

# In order. A server does many use cases at once, in its threads.
_looked_up: ContextVar[list[str] | None] = ContextVar("looked_up", default=None)


def note_lookup(ref: Ref) -> None:
    """Remember that a reference was looked up."""
    if (names := _looked_up.get()) is not None:
        names.append(str(ref))


@contextmanager
def hints_with_lookups() -> Iterator[None]:
    """Put the references that are looked up in the block where the hint of an error that leaves it says ``<name>``."""
    names: list[str] = []
    token = _looked_up.set(names)
    try:
        yield
    except MaskregError as error:
        error.hint = error.hint.replace("<name>", " ".join(dict.fromkeys(names)) or "<name>")
        raise
    finally:
        _looked_up.reset(token)
        if (outer := _looked_up.get()) is not None:
            outer += names
