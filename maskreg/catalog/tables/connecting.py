"""How a SQLite file is opened."""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress
from pathlib import Path

from maskreg.catalog.tables.filesystem import journal_mode, sqlite_uri, writable
from maskreg.disk import make_root, new_file
from maskreg.errors import CannotCreateError, TryAgainError

BUSY_SECONDS = 10.0
"""How long a SQLite connection waits for another's write transaction."""


def is_busy(error: sqlite3.Error) -> bool:
    """Whether an error says that another connection held a lock for too long."""
    # Errors of the driver itself have no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def still_written(database: object) -> TryAgainError:
    """What is raised where a database is busy; ``database`` is for the message."""
    return TryAgainError(f"{database}: another process is writing", hint="run the same command again")


def make_folder_of(path: Path) -> None:
    """Make the folder of a SQLite file.

    Raises:
        CannotCreateError: it does not exist and cannot be made.
    """
    try:
        make_root(path.parent)
    except OSError as error:
        raise CannotCreateError(f"{path.parent}: {error.strerror}") from error


def connect(path: Path | None) -> sqlite3.Connection:
    """A connection to a file, which is made when there is none, or to a database in memory.

    Transactions begin when ``BEGIN`` is executed, and only then.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    name = ":memory:" if path is None else sqlite_uri(path)
    if path is not None and not path.exists():
        # SQLite would follow the umask alone; it takes an empty file for a new database.
        with suppress(OSError):
            new_file(path).close()
    # isolation_level=None: the driver would begin transactions itself, deferred and only at the first write.
    connection = sqlite3.connect(name, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    if path is not None and writable(path):
        try:
            _set_journal(connection, journal_mode(path))
        except sqlite3.Error:
            connection.close()
            raise
    return connection


def _set_journal(connection: sqlite3.Connection, mode: str) -> None:
    # Changing the mode needs exclusive access, and SQLite does not apply its busy timeout to that.
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            # Only when it differs: opening must not need exclusive access.
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != mode:
                connection.execute(f"PRAGMA journal_mode={mode}")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.02)
