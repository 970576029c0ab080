"""What a database's failure means to the person at the other end: one table for SQLite, one for PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from maskreg.catalog.address import Address
from maskreg.errors import (
    CannotCreateError,
    ConfigError,
    CorruptError,
    LimitError,
    MaskregError,
    NoSpaceError,
    NotAllowedError,
    TryAgainError,
    UnavailableError,
)

REBUILD = "maskreg db rebuild"
_REFUSALS = ("authentication failed", "pg_hba.conf", "no password supplied", "permission denied", "role ")


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Turn what the database driver raises inside into this package's errors.

    Raises:
        TryAgainError: somebody else holds a lock for too long.
        CorruptError: the SQLite file is damaged, or not a database.
        NotAllowedError: read only, or the credentials were refused.
        CannotCreateError: the SQLite file cannot be opened, or the disk is full.
        UnavailableError: the server does not answer, or the disk does not.
        ConfigError: there is no such database, or its tables are not there.
        LimitError: a text that is too long for an index.
    """
    try:
        yield
    except PoolTimeout as error:
        raise TryAgainError(f"{address}: every database connection is in use") from error
    except UnicodeDecodeError as error:
        # SQLite quotes a damaged schema in its message, and the driver cannot read the message then.
        raise CorruptError(str(address), "its schema is damaged", hint=REBUILD) from error
    except DBAPIError as error:
        known = _sqlite(address, error.orig) if address.sqlite else _postgresql(address, error.orig)
        if known is None:
            raise
        raise known from error


@contextmanager
def readable_rows(address: Address) -> Iterator[None]:
    """Report a row that holds what was never written there: a date, a digest or a document that is none.

    Raises:
        CorruptError: such a row.
    """
    try:
        yield
    except MaskregError:
        raise
    except (TypeError, ValueError) as error:
        raise CorruptError(str(address), f"a row cannot be read ({error})", hint=REBUILD) from error


def _sqlite(address: Address, error: BaseException | None) -> MaskregError | None:
    code = getattr(error, "sqlite_errorcode", None)
    what = str(error)
    if code is None:
        return CorruptError(str(address), what, hint=REBUILD) if "decode" in what else None
    match code & 0xFF:  # the upper bits only refine the primary code
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return TryAgainError(f"{address}: somebody else is writing", hint="run the same command again")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return CorruptError(str(address), what, hint=REBUILD)
        case sqlite3.SQLITE_ERROR | sqlite3.SQLITE_CONSTRAINT:
            # The statements fit the schema that the file says it has, so it has another.
            return CorruptError(str(address), what, hint=REBUILD)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return NotAllowedError(f"{address} cannot be written here ({what})")
        case sqlite3.SQLITE_CANTOPEN:
            return CannotCreateError(f"{address}: {what}")
        case sqlite3.SQLITE_FULL:
            return NoSpaceError(f"{address}: {what}")
        case sqlite3.SQLITE_IOERR:
            return UnavailableError(f"{address}: {what}")
    return None


def _postgresql(address: Address, error: BaseException | None) -> MaskregError | None:
    import psycopg

    state = getattr(error, "sqlstate", None)
    what = " ".join(str(error).split())
    if state is None:
        return _unconnected(address, what) if isinstance(error, psycopg.Error) else None
    if state in ("42501", "25006") or state.startswith("28"):
        return NotAllowedError(f"{address}: {what}")
    if state in ("55P03", "40001", "40P01"):
        return TryAgainError(f"{address}: somebody else holds a lock", hint="run the same command again")
    if state in ("42P01", "42703", "3D000"):
        return ConfigError(f"{address}: {what}", hint="maskreg db upgrade")
    if state in ("XX001", "XX002"):
        return CorruptError(str(address), what, hint=REBUILD)
    if state.startswith("54"):
        return LimitError(f"{address}: {what}")
    if state == "53100":
        return NoSpaceError(f"{address}: {what}")
    if state[:2] in ("08", "53", "57", "58"):
        return UnavailableError(f"{address}: {what}")
    return None


def _unconnected(address: Address, what: str) -> MaskregError:
    # While a connection is being made the client library gives a text and no state.
    if any(sign in what for sign in _REFUSALS):
        return NotAllowedError(f"{address}: {what}", hint="check the user in the URL, and ~/.pgpass or PGPASSWORD")
    if "database" in what and "does not exist" in what:
        return ConfigError(f"{address}: {what}", hint=f"createdb {address.url.database}")
    return UnavailableError(f"{address} does not answer: {what}")
