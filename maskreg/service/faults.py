"""Faults of the server's own parts, as clients hear of them.

A database that is gone, a bucket that refuses the server, a full disk: none of it is the client's doing, and the next
step is not the client's to take. Clients hear which kind of fault it is, and the log says the rest::

    the log         postgresql+psycopg://maskreg@db:5432/maskreg does not answer: connection failed: …
    the client      the server's store or database does not answer
                    next: try again in a moment; the operator finds the reason in the server's log
"""

from __future__ import annotations

import logging
import re

from maskreg.errors import (
    CannotCreateError,
    ConfigError,
    MaskregError,
    NoSpaceError,
    OutputExistsError,
    QuotaError,
    RefusedError,
    UnavailableError,
    plain_facts,
)


class ProviderError(UnavailableError):
    """The OpenID provider does not answer, or answers something else."""


class SilentError(UnavailableError):
    """Parts of the server that have not answered in time, by name."""


class SlowError(UnavailableError):
    """The body of a request stopped coming."""


_log = logging.getLogger("maskreg.service.faults")

_OPERATOR = "the operator finds the reason in the server's log"
_LATER = f"try again in a moment; {_OPERATOR}"

_FAULTS: dict[type[MaskregError], MaskregError | None] = {
    MaskregError: None,
    UnavailableError: UnavailableError("the server's store or database does not answer", hint=_LATER),
    RefusedError: UnavailableError("the server's store or database refuses the server", hint=_OPERATOR),
    ConfigError: ConfigError("the server is not set up for this", hint=_OPERATOR),
    CannotCreateError: CannotCreateError("the server cannot write", hint=_OPERATOR),
    NoSpaceError: NoSpaceError("the server has no space left", hint=_OPERATOR),
    # What these say is for the client.
    ProviderError: None,
    SilentError: None,
    SlowError: None,
    QuotaError: None,
    OutputExistsError: None,
}


def public_of(error: MaskregError) -> MaskregError:
    """What clients hear in place of an error of the server's own parts, which is logged; any other error as it is.

    The texts of both can still hold paths: see :func:`maskreg.service.faults.without_paths`.
    """
    fault = next(_FAULTS[kind] for kind in type(error).__mro__ if kind in _FAULTS)
    if fault is None:
        return error
    _log.error("%s", error, extra={"fields": {"next": error.hint, **plain_facts(error.facts)}})
    return fault


_ABSOLUTE = re.compile(r"(?:\bfile://|(?<![\w.:/~-]))/(?:[^\s/'\":,;()]+/)*(?P<last>[^\s/'\":,;()]+)/?")
# An absolute path, as a file:// URL or bare: not the path of a reference (team/name) or of another URL (https://...).

_DATABASE = re.compile(r"\bpostgresql(?:\+\w+)?://[^\s'\",;()]*[^\s'\",;():.]")


def without_paths(text: str) -> str:
    """A text with every absolute path cut down to its last name, and every URL of a database to what it is.

    ::

        /srv/models/qwen3-8b: tensor w: leaf 3 differs       qwen3-8b: tensor w: leaf 3 differs
        there is no team/opd in local (file:///srv/home)     there is no team/opd in local (home)
        postgresql+psycopg://ada@db/masks: a lock is held    the database: a lock is held
    """
    return _ABSOLUTE.sub(lambda match: match["last"], _DATABASE.sub("the database", text))
