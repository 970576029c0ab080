"""What is sent to a service and what comes back: one request, its whole answer, or that the connection broke off.

A refusal becomes the error that its code names, else the one of its status. Another program at a service's URL is one
error: :func:`strange`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from maskreg import errors
from maskreg.document import parse_object
from maskreg.extras import upgrade_command

DEFAULT_ANSWER_BYTES = 64 << 20
"""The most bytes of an answer's body, where a message does not say."""


@dataclass(frozen=True)
class Message:
    """A request.

    Attributes:
        method: of HTTP.
        path: below the interface's beginning, percent-encoded.
        query: of the URL.
        headers: besides those that every request has.
        content: the body.
        max_bytes: of the answer's body.
        repeatable: carrying it out twice does no harm.
        elsewhere: the answer can come from another host, because it is checked against a digest.
        accepted: refusals that the caller wants to see.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    max_bytes: int = DEFAULT_ANSWER_BYTES
    repeatable: bool = True
    elsewhere: bool = False
    accepted: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What was answered."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class LostError(Exception):
    """The connection broke off; ``unsent`` when the request was not carried out. It never quotes a signed URL."""

    def __init__(self, reason: str, *, unsent: bool = False) -> None:
        super().__init__(reason)
        self.unsent = unsent


def _kinds() -> dict[str, type[errors.MaskregError]]:
    kinds: list[type[errors.MaskregError]] = [*errors.MaskregError.__subclasses__()]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    # Of a class whose first argument is a fact, such as a key, a service's sentence makes one above it.
    by_code: dict[str, type[errors.MaskregError]] = {"QUEUE_FULL": errors.TryAgainError}
    for kind in kinds:
        if kind.__module__ == errors.MaskregError.__module__:
            of_a_message = (each for each in kind.__mro__ if next(iter(signature(each).parameters)) == "message")
            by_code.setdefault(kind.code, next(of_a_message))
    return by_code


BY_CODE = _kinds()
"""The error that a code of a service stands for, or the nearest above it that a message makes."""

_FACTS = ("history", "removed", "similar", "absent", "not_pulled", "ref", "project", "job_sources", "whoami")
"""Facts of an error that a service tells: names of its registry, and no path or address of the server."""

_OPTIONS = frozenset({"allow_mismatch", "mask_only", "reversible", "rule", "settings"})
"""Of options that would mend a request, those that requests to a service have too."""

_MOST_CHARACTERS = 1_000
"""Of a service's sentence that is shown."""

_BY_STATUS: dict[int, type[errors.MaskregError]] = {
    401: errors.UnauthenticatedError,
    403: errors.NotAllowedError,
    404: errors.NotFoundError,
    408: errors.UnavailableError,
    409: errors.ConflictError,
    412: errors.ConflictError,
    413: errors.LimitError,
    422: errors.UsageError,
    507: errors.NoSpaceError,
}


def strange(url: str) -> errors.ConfigError:
    """The error for what is no answer of a registry service of this version."""
    return errors.ConfigError(
        f"{url}: this is no answer of a registry service of this version",
        hint=f"check the URL, or upgrade with: {upgrade_command()}",
        known_remotes=True,
    )


def document(url: str, data: bytes) -> dict[str, Any]:
    """The document that a service answered with; its size was limited when it was received."""
    with understanding(url):
        return parse_object(data, url, max_bytes=len(data), max_values=len(data))


@contextmanager
def understanding(url: str) -> Iterator[None]:
    """Read what a service answered: what is missing, or is of another type, makes the answer a strange one."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise strange(url) from error


def refused(url: str, status: int, headers: Mapping[str, str], data: bytes) -> errors.MaskregError:
    """The error that a service answered with."""
    row = _problem(url, headers, data)
    code, title, hint = (sentence(row.get(key)) for key in ("code", "title", "hint"))
    kind = BY_CODE.get(code) or _BY_STATUS.get(status)
    if kind is None:
        kind = errors.UnavailableError if status == 429 or status >= 500 else errors.ConfigError
    if not row and kind is not errors.UnavailableError:
        return strange(url)
    facts = public_facts(row.get("facts"))
    if kind is errors.UnauthenticatedError:
        hint = ""
        facts["url"] = url
    if kind in (errors.UnavailableError, errors.TryAgainError) and not hint:
        hint = "run the same command again in a moment"
    return kind(f"{url}: {title or f'the request was refused ({status})'}", hint=hint, **facts)


def public_facts(facts: object) -> dict[str, Any]:
    """The facts that a service tells and a client takes; known names only, for they become arguments of an error."""
    if not isinstance(facts, dict):
        return {}
    known: dict[str, Any] = {name: _plain(facts[name]) for name in _FACTS if name in facts}
    options = facts.get("options")
    if isinstance(options, dict) and options and set(options) <= _OPTIONS:
        known["options"] = {name: _plain(value) for name, value in options.items()}
    return known


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {sentence(key): _plain(each) for key, each in value.items()}
    return value if isinstance(value, bool | int | float) else sentence(value)


def sentence(value: object) -> str:
    """What a service says, fit to be shown: one line, so that it writes none of its own below, and no screen of it."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} …"


def _problem(url: str, headers: Mapping[str, str], data: bytes) -> dict[str, Any]:
    if not headers.get("content-type", "").startswith("application/problem+json"):
        return {}
    if not data:
        return {"title": ""}  # the answer to a HEAD has no body
    try:
        return document(url, data)
    except errors.ConfigError:
        return {}
