"""From a service's refusals to this package's errors: the codes of its problems, then the status."""

from __future__ import annotations

import json
from collections.abc import Mapping

from maskreg.errors import (
    CannotCreateError,
    ConfigError,
    ConflictError,
    DataError,
    FormatError,
    ImmutableTagError,
    LimitError,
    MaskregError,
    NoSpaceError,
    NotAllowedError,
    NotFoundError,
    PartAbsentError,
    QuotaError,
    TryAgainError,
    UnauthenticatedError,
    UnavailableError,
    UsageError,
)

_BY_CODE: Mapping[str, type[MaskregError]] = {
    kind.code: kind
    for kind in (
        *(UsageError, DataError, FormatError, LimitError, NotFoundError, PartAbsentError, UnavailableError),
        *(CannotCreateError, NoSpaceError, TryAgainError, ConflictError, NotAllowedError, UnauthenticatedError),
        *(ImmutableTagError, ConfigError, QuotaError),
    )
} | {"DIGEST_MISMATCH": DataError, "OUTPUT_EXISTS": CannotCreateError, "QUEUE_FULL": TryAgainError}

_BY_STATUS: dict[int, type[MaskregError]] = {
    401: UnauthenticatedError,
    403: NotAllowedError,
    404: NotFoundError,
    409: ConflictError,
    412: ConflictError,
    413: LimitError,
    422: UsageError,
    507: NoSpaceError,
}


def refused(url: str, status: int, headers: Mapping[str, str], data: bytes) -> MaskregError:
    """The error that a service answered with.

    Args:
        url: the service.
        status: of HTTP.
        headers: of the answer, by name in lower case.
        data: its body.
    """
    row = _problem(headers, data)
    code, title, hint = (str(row.get(key, "")) for key in ("code", "title", "hint"))
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status)
    if kind is None:
        kind = UnavailableError if status == 429 or status >= 500 else ConfigError
    if not row and kind is not UnavailableError:
        what = "something else than a registry service answers"
        return ConfigError(f"{url}: {what} (status {status})", hint="check the URL: maskreg remote list")
    if kind is UnauthenticatedError:
        hint = f"maskreg login {url} --token-stdin"
    if kind is UnavailableError and not hint:
        hint = "run the same command again in a moment"
    return kind(f"{url}: {title or f'the request was refused ({status})'}", hint=hint)


def _problem(headers: Mapping[str, str], data: bytes) -> dict[str, object]:
    if not headers.get("content-type", "").startswith("application/problem+json"):
        return {}
    if not data:
        return {"title": ""}  # the answer to a HEAD has no body
    try:
        row = json.loads(data)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}
