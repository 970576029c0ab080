"""What is sent to a service and what comes back: one request, its whole answer, or that the connection broke off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
        elsewhere: the answer may come from another host, because it is checked against a digest.
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
    """What was answered.

    Attributes:
        status: of HTTP.
        headers: by name in lower case.
        data: the body.
    """

    status: int
    headers: Mapping[str, str]
    data: bytes


class LostError(Exception):
    """The connection broke off, before or after the request was carried out.

    Args:
        reason: the kind of error; never its text, which may hold a signed URL.
        unsent: it was not carried out.
    """

    def __init__(self, reason: str, *, unsent: bool = False) -> None:
        super().__init__(reason)
        self.unsent = unsent
