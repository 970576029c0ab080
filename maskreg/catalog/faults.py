"""From a database driver's errors to this package's: one table for SQLite, one for PostgreSQL.

SQLite reports a code whose low byte is the primary code and whose upper bits refine it: SQLITE_IOERR_READ is
266 = 10 | 1 << 8, SQLITE_IOERR is 10. PostgreSQL reports a five-character SQLSTATE whose first two characters are the
class: 28P01 (invalid password) is in class 28 (invalid authorization). Only an error that is in neither table leaves
as the driver's own, so that a bug in a statement is not mistaken for a fault of the disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from maskreg import errors
from maskreg.catalog.engine import Address
from maskreg.catalog.file import is_busy, still_written

_REFUSALS = ("authentication failed", "pg_hba.conf", "no password supplied", "permission denied", "role ")
_CREDENTIALS = "check the user in the URL, and ~/.pgpass or PGPASSWORD"


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Raise this package's errors in place of the database driver's, and for a row that does not parse."""
    try:
        yield
    except errors.MaskregError:
        raise
    except PoolTimeout as error:
        raise errors.TryAgainError(f"{address}: every database connection is in use") from error
    except UnicodeDecodeError as error:
        # SQLite quotes a damaged schema in its message, which the driver then cannot decode.
        raise errors.CorruptError(str(address), "its schema is damaged", catalog_damaged=True) from error
    except DBAPIError as error:
        known = _sqlite(address, error.orig) if address.sqlite else _postgresql(address, error.orig)
        if known is None:
            raise
        raise known from error
    except (TypeError, ValueError) as error:
        # The date, the digest or the JSON document of a row.
        raise errors.CorruptError(str(address), f"a row cannot be read ({error})", catalog_damaged=True) from error


def _sqlite(address: Address, error: BaseException | None) -> errors.MaskregError | None:
    code = getattr(error, "sqlite_errorcode", None)
    text = str(error)
    if code is None:
        return errors.CorruptError(str(address), text, catalog_damaged=True) if "decode" in text else None
    if isinstance(error, sqlite3.Error) and is_busy(error):
        return still_written(address)
    match code & 0xFF:  # the upper bits only refine the primary code
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return errors.RefusedError(f"{address} is read-only ({text})", hint=address.folder_step)
        case sqlite3.SQLITE_CANTOPEN:
            return errors.CannotCreateError(f"{address}: {text}", hint=address.folder_step)
        case sqlite3.SQLITE_FULL:
            return errors.NoSpaceError(f"{address}: {text}", hint=address.space_step)
        case sqlite3.SQLITE_IOERR:
            return errors.UnavailableError(f"{address}: {text}", hint=address.folder_step)
        case sqlite3.SQLITE_INTERNAL | sqlite3.SQLITE_NOMEM | sqlite3.SQLITE_MISUSE | sqlite3.SQLITE_RANGE:
            return None
    # It is no database, or the statements and values fit the schema that the file records, and it or a row is damaged.
    return errors.CorruptError(str(address), text, catalog_damaged=True)


def _postgresql(address: Address, error: BaseException | None) -> errors.MaskregError | None:
    import psycopg

    state = getattr(error, "sqlstate", None)
    text = " ".join(str(error).split())
    if state is None:
        return _unconnected(address, text) if isinstance(error, psycopg.Error) else None
    if state.startswith("28"):
        return errors.RefusedError(f"{address}: {text}", hint=_CREDENTIALS)
    if state == "42501":
        return errors.RefusedError(f"{address}: {text}", hint=address.grant_step)
    if state == "25006":
        return errors.RefusedError(f"{address}: {text}", hint="name the primary server in the URL: this one only reads")
    if state in ("55P03", "40001", "40P01"):
        return errors.TryAgainError(f"{address}: another client holds a lock", hint="run the same command again")
    if state == "3D000":
        return errors.ConfigError(f"{address}: {text}", hint=address.create_step)
    if state in ("42P01", "42703"):
        return errors.ConfigError(f"{address}: {text}", catalog_behind=True)
    if state in ("XX001", "XX002"):
        return errors.CorruptError(str(address), text, catalog_damaged=True)
    if state.startswith("54"):
        return errors.LimitError(f"{address}: {text}")
    if state == "53100":
        return errors.NoSpaceError(f"{address}: {text}", hint="free space on the disk of the database server")
    if state[:2] in ("08", "53", "57", "58"):
        return errors.UnavailableError(f"{address}: {text}", hint=address.ready_step)
    return None


def _unconnected(address: Address, text: str) -> errors.MaskregError:
    # Before a connection exists the client library gives a text and no SQLSTATE.
    if any(sign in text for sign in _REFUSALS):
        return errors.RefusedError(f"{address}: {text}", hint=_CREDENTIALS)
    if "database" in text and "does not exist" in text:
        return errors.ConfigError(f"{address}: {text}", hint=address.create_step)
    return errors.UnavailableError(f"{address} does not answer: {text}", hint=address.ready_step)
