"""Errors as HTTP answers: ``application/problem+json`` (RFC 9457) with the codes of the command line.

A database that is gone, a bucket that refuses the server, a full disk: a client has caused none of these, and the next
step is not the client's to take. Clients hear which kind of fault it is, and the log says the rest::

    the log         postgresql+psycopg://maskreg@db:5432/maskreg does not answer: connection failed: …
    the client      the server's store or database does not answer
                    hint: try again in a moment; the operator finds the reason in the server's log
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import Scope

from maskreg import errors
from maskreg.service.observing import HEADER, request_id
from maskreg.store.message import public_facts


class ProviderError(errors.UnavailableError):
    """The OpenID provider does not answer, or answers something else."""


class SilentError(errors.UnavailableError):
    """Parts of the server that have not answered in time, by name."""


class SlowError(errors.UnavailableError):
    """The body of a request stopped coming."""


_log = logging.getLogger("maskreg.service.problems")

_OPERATOR = "the operator finds the reason in the server's log"
_LATER = f"try again in a moment; {_OPERATOR}"

_FAULTS: dict[type[errors.MaskregError], errors.MaskregError | None] = {
    errors.MaskregError: None,
    errors.UnavailableError: errors.UnavailableError("the server's store or database does not answer", hint=_LATER),
    errors.RefusedError: errors.UnavailableError("the server's store or database refuses the server", hint=_OPERATOR),
    errors.ConfigError: errors.ConfigError("the server is not set up for this", hint=_OPERATOR),
    errors.CannotCreateError: errors.CannotCreateError("the server cannot write", hint=_OPERATOR),
    errors.NoSpaceError: errors.NoSpaceError("the server has no space left", hint=_OPERATOR),
    # What these say is for the client.
    ProviderError: None,
    SilentError: None,
    SlowError: None,
    errors.QuotaError: None,
    errors.OutputExistsError: None,
}


def public_of(error: errors.MaskregError) -> errors.MaskregError:
    """What clients hear in place of an error of the server's own parts, which is logged; any other error as it is.

    The texts of both can still hold paths: see :func:`without_paths`.
    """
    fault = next(_FAULTS[kind] for kind in type(error).__mro__ if kind in _FAULTS)
    if fault is None:
        return error
    _log.error("%s", error, extra={"fields": {"hint": error.hint, **errors.plain_facts(error.facts)}})
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


MEDIA_TYPE = "application/problem+json"

AsPage: TypeAlias = Callable[[Request, int, str, str, str], Response | None]
"""From a request, a status, what is wrong, its code and the next step to a page; None for who reads none."""

STATUS: dict[type[errors.MaskregError], int] = {
    errors.MaskregError: 500,
    errors.UsageError: 422,
    errors.DataError: 422,
    errors.LimitError: 413,
    errors.NotFoundError: 404,
    errors.UnavailableError: 503,
    SlowError: 408,
    errors.CannotCreateError: 500,
    errors.OutputExistsError: 409,
    errors.NoSpaceError: 507,
    errors.QuotaError: 507,
    errors.TryAgainError: 503,
    errors.RateLimitedError: 429,
    errors.ConflictError: 409,
    errors.StaleError: 412,
    errors.PreconditionError: 428,
    errors.NotAllowedError: 403,
    errors.ImmutableTagError: 409,
    errors.UnauthenticatedError: 401,
    errors.ConfigError: 500,
}
"""HTTP status by kind of error; a kind that is not listed has the status of the nearest one above it."""


_Table = Mapping[type[errors.MaskregError], Mapping[str, str]]

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_DESCRIBED = "what can be asked, and how, is described at /docs"


HELP: _Table = {
    errors.NotFoundError: {"removed": "an admin of the project can restore it"},
    errors.LimitError: {"compared": "compare them on a machine of your own: maskreg compare {compared}"},
    errors.UnauthenticatedError: {"": "send a token of this service: Authorization: Bearer TOKEN"},
}
"""By class and fact, what helps every reader; the empty fact is in every error."""

REQUESTS: _Table = {
    errors.MaskregError: {
        "job_sources": "GET /api/v1/sources lists them",
        "history": "GET /api/v1/projects/{history.project}/refs/{history.name}/{history.tag}/history tells it",
        "project": "GET /api/v1/artifacts?project={project} lists them",
    },
    errors.NotFoundError: {
        "similar": "GET /api/v1/artifacts?text={similar} lists similar names",
        "remote": "GET /api/v1/artifacts lists what is there",
    },
}
"""By class and fact, what a program can ask next; pages do not show it, and the command line has a table of its own."""


def _row(table: _Table, error: errors.MaskregError) -> str:
    rows = ((fact, row) for kind in type(error).__mro__ for fact, row in table.get(kind, {}).items())
    return next((row.format_map(error.facts) for fact, row in rows if not fact or fact in error.facts), "")


def problem(
    status: int,
    title: str,
    *,
    code: str,
    hint: str = "",
    step: str = "",
    facts: Mapping[str, object] | None = None,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    """An answer that says what is wrong; a client's program tells its own next step from the facts."""
    body: dict[str, object] = {"type": "about:blank", "title": title, "status": status, "code": code}
    if facts:
        body["facts"] = facts
    if hint:
        body["hint"] = hint
    if step:
        body["see"] = step
    if identity := request_id():
        body["request_id"] = identity
    return JSONResponse(body, status, headers, media_type=MEDIA_TYPE)


def problem_of(error: errors.MaskregError) -> JSONResponse:
    """The answer for an error that :func:`public_of` gave."""
    status, title, hint, more = _parts(error)
    return problem(status, title, code=error.code, hint=hint, **more)


def _parts(error: errors.MaskregError) -> tuple[int, str, str, dict[str, Any]]:
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    headers = {
        401: {"WWW-Authenticate": "Bearer"},
        # The rest of the body can still come, and would pass for the next request.
        408: {"Connection": "close"},
        429: {"Retry-After": str(getattr(error, "retry_after_s", 1))},
        503: {"Retry-After": "1"},
    }.get(status)
    hint = ": ".join(filter(None, (without_paths(error.hint), _row(HELP, error))))
    more = {"step": _row(REQUESTS, error), "facts": public_facts(errors.plain_facts(error.facts)), "headers": headers}
    return status, without_paths(error.message), hint, more


def install(app: FastAPI, as_page: AsPage) -> None:
    """Answer every error of an app in this form. An unexpected exception says nothing about itself; the log does."""

    def answered(request: Request, status: int, title: str, code: str, hint: str = "", **more: Any) -> Response:
        return as_page(request, status, title, code, hint) or problem(status, title, code=code, hint=hint, **more)

    @app.exception_handler(errors.MaskregError)
    def _known(request: Request, error: errors.MaskregError) -> Response:
        public = public_of(error)
        status, title, hint, more = _parts(public)
        return answered(request, status, title, public.code, hint, **more)

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> Response:
        if isinstance(error.__cause__, errors.MaskregError):
            # A body that a route refused while the framework read it.
            return _known(request, error.__cause__)
        headers = dict(error.headers) if error.headers else None
        code, title = errors.UsageError.code, f"the request cannot be read: {error.detail}"
        if error.status_code == 404:
            code, title = errors.NotFoundError.code, "there is nothing at this address"
        elif error.status_code == 405:
            title = f"this address does not take {request.method}"
            # The framework names the methods of one route, and an address can have several.
            headers = {"Allow": ", ".join(method for method in _METHODS if _answers(app, request, method))}
        return answered(request, error.status_code, title, code, step=_DESCRIBED, headers=headers)

    @app.exception_handler(ClientDisconnect)
    def _gone(request: Request, _: ClientDisconnect) -> Response:
        # The client is gone; the log of requests shows this answer.
        return problem(400, "the client disconnected before the request ended", code=errors.UsageError.code)

    @app.exception_handler(Exception)
    def _unknown(request: Request, _: Exception) -> Response:
        answer = answered(request, 500, "the server failed; its log says why", errors.MaskregError.code)
        # The middleware that adds it to other answers is not reached by this one.
        answer.headers[HEADER] = request_id()
        return answer

    @app.exception_handler(RequestValidationError)
    def _malformed(request: Request, error: RequestValidationError) -> Response:
        return answered(request, 422, sentence(error.errors()[0]), errors.UsageError.code, step=_DESCRIBED)


def is_taken(app: FastAPI, scope: Scope) -> bool:
    """Whether some route takes a request's address and method."""
    return any(route.matches(scope)[0] is Match.FULL for route in app.routes)


def _answers(app: FastAPI, request: Request, method: str) -> bool:
    methods = (method, "GET") if method == "HEAD" else (method,)
    return any(is_taken(app, {**request.scope, "method": method}) for method in methods)


def sentence(error: Mapping[str, Any]) -> str:
    """One error of a validation as a sentence without its full stop."""
    where, *parts = (str(part) for part in error["loc"])
    message = str(error["msg"])
    return f"{'.'.join(parts) or where}: {message[:1].lower()}{message[1:]}"
