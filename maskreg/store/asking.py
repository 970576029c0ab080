"""Requests to servers that are no registries, in JSON: servers that generate, and what is told of new weights."""

from __future__ import annotations

from collections.abc import Mapping

from maskreg.errors import UnavailableError, WorkerError
from maskreg.store.message import DEFAULT_ANSWER_BYTES, LostError, Message, sentence
from maskreg.store.transport import Transport

_CONNECT_SECONDS = 10.0


def ask(
    url: str,
    content: bytes = b"",
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    read_seconds: float = 600.0,
    max_bytes: int = DEFAULT_ANSWER_BYTES,
) -> bytes:
    """Send a document to a server, and read the document that it answers.

    Args:
        read_seconds: how long the next bytes of the answer can take.
        max_bytes: of the answer.

    Raises:
        UnavailableError: the server does not answer.
        WorkerError: it refused; the fact ``status`` is of HTTP.
        LimitError: its answer is longer than that.
    """
    # After an error a server closes a connection that would be used again.
    stated = {"Connection": "close", "Content-Type": "application/json", **(headers or {})}
    message = Message(method, url, content=content, max_bytes=max_bytes)
    try:
        answer = Transport("", _CONNECT_SECONDS, read_seconds).send(message, url, stated)
    except LostError as error:
        raise UnavailableError(f"{url} does not answer ({error})", hint="look at its log, or start it again") from error
    if not 200 <= answer.status < 300:
        said = sentence(answer.data[:4000].decode(errors="replace"))
        raise WorkerError(f"{url} answered {answer.status}: {said}", hint="look at its log", status=answer.status)
    return answer.data
