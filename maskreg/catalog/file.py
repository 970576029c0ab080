"""A SQLite file: where it is, how it is opened, and read and written without SQLAlchemy.

For one machine with several processes:

* WAL on local disks: readers see the last commit while one process writes, and no reader waits.
* ``BEGIN IMMEDIATE`` for a transaction that will write. With the default (deferred) BEGIN, a transaction that reads
  first and writes later fails at once with SQLITE_BUSY when another process committed in between, even with a
  timeout; one that takes the write lock first waits its turn::

      A: BEGIN; SELECT n        B: BEGIN IMMEDIATE; UPDATE n; COMMIT        A: UPDATE n -> SQLITE_BUSY_SNAPSHOT
      A: BEGIN IMMEDIATE        B: BEGIN IMMEDIATE waits                    A: UPDATE n; COMMIT; B goes on

* ``BEGIN DEFERRED`` for reading: one consistent snapshot, no lock.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from maskreg.catalog.rows import clean
from maskreg.disk import new_file
from maskreg.errors import TryAgainError

REVISIONS = ("0001",)
"""Every revision of the schema that this version knows, oldest first."""

HEAD = REVISIONS[-1]
"""The revision that this version works with."""

VERSION_TABLE = "maskreg_schema"
"""The table that holds it. Not alembic's default name: another application can use alembic in the same database."""

BUSY_SECONDS = 10.0
"""How long a SQLite connection waits for another's write transaction."""

MOUNTINFO = Path("/proc/self/mountinfo")
"""The kernel's mount table; absent on macOS, where every file system counts as local."""

# WAL keeps its index in memory that is shared between processes, not between machines: two hosts that write one
# file over a network would corrupt it (sqlite.org/wal.html). A rollback journal is correct everywhere and only slower,
# so a doubtful type belongs on this list.
_NETWORK = re.compile(
    r"nfs\d*|cifs|smb\w*|lustre|gpfs|beegfs\w*|ceph|glusterfs|afs|panfs|pvfs2|orangefs|wekafs|ocfs2|gfs2"
    r"|9p|virtiofs|vboxsf|fuse\..+"
)


def connect(path: Path | None) -> sqlite3.Connection:
    """A connection to a file, which is made when there is none, or to a database in memory.

    Transactions begin when ``BEGIN`` is executed, and only then.
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


_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether an error says that another connection held a lock for too long."""
    # Errors of the driver itself have no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY


def still_written(database: object) -> TryAgainError:
    """What is raised where a database is busy; ``database`` is for the message."""
    return TryAgainError(f"{database}: another process is writing", hint="run the same command again")


def journal_mode(path: Path) -> str:
    """``wal`` on a local disk, ``delete`` (a rollback journal) on a network file system; its folder must exist."""
    device = path.parent.stat().st_dev
    number, kinds = f"{os.major(device)}:{os.minor(device)}", set[str]()
    # See proc_pid_mountinfo(5): the third field is the device, the type of the file system follows the dash.
    for line in MOUNTINFO.read_text(errors="surrogateescape").splitlines() if MOUNTINFO.exists() else ():
        entry, _, tail = line.partition(" - ")
        kinds |= {tail.split()[0]} if entry.split()[2] == number else set()
    return "delete" if any(map(_NETWORK.fullmatch, kinds)) else "wal"


def writable(path: Path) -> bool:
    """Whether the database, and the journal beside it, can be written (a missing file counts as writable)."""
    return not path.exists() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def sqlite_uri(path: Path) -> str:
    """The URI to open an absolute ``path`` with: read and write if possible, else read only.

    A read-only user cannot create the ``-shm`` file that WAL needs, so a file at rest is opened ``immutable``, without
    any locking. While a writer is at work that would be wrong: the newest rows can still be in ``-wal``, or
    ``-journal`` can hold pages to roll back. Then the file is opened ``mode=ro``, which uses the writer's files.
    """
    name = "file:" + quote(os.fsencode(path))
    if writable(path):
        return f"{name}?mode=rwc"
    beside = [path.with_name(path.name + suffix) for suffix in ("-wal", "-journal")]
    live = any(file.exists() and file.stat().st_size > 0 for file in beside)
    return f"{name}?mode=ro" if live else f"{name}?immutable=1"


# Without SQLAlchemy


class Put(NamedTuple):
    """A row to write, in place of one that has the same ``keys`` where ``where`` holds; without keys it is added."""

    table: str
    row: Mapping[str, object]
    keys: tuple[str, ...] = ()
    where: str = "1"


def read(path: Path, statement: str, values: Sequence[str]) -> list[tuple[Any, ...]] | None:
    """Rows of a file; None where it is missing, damaged, busy, or of another schema.

    Commands ask this before they open a catalog: importing SQLAlchemy takes as long as most of them do.
    """
    if not path.exists():
        return None
    try:
        with closing(sqlite3.connect(sqlite_uri(path), uri=True, timeout=BUSY_SECONDS)) as connection:
            if connection.execute(_SCHEMA).fetchall() != [(HEAD,)]:
                return None
            return connection.execute(statement, values).fetchall()
    except (sqlite3.Error, UnicodeDecodeError):
        return None


def write(path: Path, rows: Iterable[Put]) -> bool:
    """Write rows to a file in one transaction; false, and nothing written, where :func:`read` gives None."""
    if not path.exists() or not writable(path):
        return False
    try:
        with closing(connect(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute(_SCHEMA).fetchall() != [(HEAD,)]:
                return False
            for put in rows:
                names = [f'"{name}"' for name in put.row]
                replaced = ", ".join(f"{name} = excluded.{name}" for name in names)
                conflict = f"ON CONFLICT ({', '.join(put.keys)}) DO UPDATE SET {replaced} WHERE {put.where}"
                connection.execute(
                    f"INSERT INTO {put.table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
                    f"{conflict if put.keys else ''}",
                    [_stored(value) for value in put.row.values()],
                )
            connection.execute("COMMIT")
            return True
    except sqlite3.Error:
        return False


_SCHEMA = f"SELECT version_num FROM {VERSION_TABLE}"


def _stored(value: object) -> object:
    # As the column types of the models store it.
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
    return json.dumps(value) if isinstance(value, dict) else value
