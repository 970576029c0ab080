"""Errors as HTTP answers: ``application/problem+json`` (RFC 9457) with the codes of the command line."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from maskreg.errors import (
    CannotCreateError,
    ConfigError,
    ConflictError,
    DataError,
    ImmutableTagError,
    LimitError,
    MaskregError,
    NoSpaceError,
    NotAllowedError,
    NotFoundError,
    OutputExistsError,
    TryAgainError,
    UnauthenticatedError,
    UnavailableError,
    UsageError,
)
from maskreg.service.jobs.base import QueueFullError
from maskreg.service.paths import without_paths

MEDIA_TYPE = "application/problem+json"

STATUS: dict[type[MaskregError], int] = {
    MaskregError: 500,
    UsageError: 422,
    DataError: 422,
    LimitError: 413,
    NotFoundError: 404,
    UnavailableError: 503,
    CannotCreateError: 500,
    OutputExistsError: 409,
    NoSpaceError: 507,
    TryAgainError: 503,
    ConflictError: 409,
    QueueFullError: 429,
    NotAllowedError: 403,
    ImmutableTagError: 409,
    UnauthenticatedError: 401,
    ConfigError: 500,
}
"""HTTP status by kind of error; a kind that is not listed has that of the nearest one above it."""


def status_of(error: MaskregError) -> int:
    """The HTTP status of an error."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def problem(
    status: int, title: str, *, code: str, hint: str = "", headers: dict[str, str] | None = None
) -> JSONResponse:
    """An answer that says what is wrong.

    Args:
        status: of HTTP.
        title: what is wrong, in one sentence.
        code: stable identifier for programs, as in :class:`~maskreg.errors.MaskregError`.
        hint: the next step; empty when there is none.
        headers: of the answer.
    """
    body = {"type": "about:blank", "title": title, "status": status, "code": code}
    if hint:
        body["hint"] = hint
    return JSONResponse(body, status, headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every error of an app in this form. What nobody expected says nothing about itself; the log does."""

    @app.exception_handler(MaskregError)
    def _known(_: Request, error: MaskregError) -> JSONResponse:
        status = status_of(error)
        headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {"Retry-After": "1"} if status == 503 else None
        title, hint = without_paths(error.message), without_paths(error.hint)
        return problem(status, title, code=error.code, hint=hint, headers=headers)

    @app.exception_handler(HTTPException)
    def _http(_: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers) if error.headers else None
        return problem(error.status_code, str(error.detail), code=f"HTTP_{error.status_code}", headers=headers)

    @app.exception_handler(RequestValidationError)
    def _malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return problem(422, f"{where}: {first['msg']}", code=UsageError.code)
