"""Which journal mode a SQLite file can use on its file system, and whether the file can be written."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote

MOUNTINFO = Path("/proc/self/mountinfo")
"""The kernel's mount table; absent on macOS, where every file system counts as local."""

# WAL keeps its index in memory that is shared between processes, not between machines: two hosts that write one
# file over a network would corrupt it (sqlite.org/wal.html). A rollback journal is correct everywhere and only slower,
# so a doubtful type belongs on this list.
_NETWORK = re.compile(
    r"nfs\d*|cifs|smb\w*|lustre|gpfs|beegfs\w*|ceph|glusterfs|afs|panfs|pvfs2|orangefs|wekafs|ocfs2|gfs2"
    r"|9p|virtiofs|vboxsf|fuse\..+"
)


def file_system(path: Path) -> str:
    """Type of the file system that holds ``path``, as the kernel names it; empty when unknown."""
    if not MOUNTINFO.exists():
        return ""
    real = path.resolve()
    best, kind = -1, ""
    for line in MOUNTINFO.read_text(errors="surrogateescape").splitlines():
        # See proc_pid_mountinfo(5): the fifth field is the mount point, the type follows the dash.
        fields, _, tail = line.partition(" - ")
        point = Path(_unescaped(fields.split()[4]))
        depth = len(point.parts)
        # A later mount on the same point hides the earlier one.
        if depth >= best and real.is_relative_to(point):
            best, kind = depth, tail.split()[0]
    return kind


def journal_mode(path: Path) -> str:
    """``wal`` on a local disk, ``delete`` (a rollback journal) on a network file system."""
    return "delete" if _NETWORK.fullmatch(file_system(path)) else "wal"


def writable(path: Path) -> bool:
    """Whether the database, and the journal beside it, can be written (a missing file counts as writable)."""
    return not path.exists() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def sqlite_uri(path: Path) -> str:
    """The URI to open an absolute ``path`` with: read and write if possible, else read only.

    A read-only user cannot create the ``-shm`` file that WAL needs, so a file at rest is opened ``immutable``, without
    any locking. While a writer is at work that would be wrong: the newest rows may still be in ``-wal``, or
    ``-journal`` may hold pages to roll back. Then the file is opened ``mode=ro``, which uses the writer's files.
    """
    name = "file:" + quote(str(path))
    if writable(path):
        return f"{name}?mode=rwc"
    beside = [path.with_name(path.name + suffix) for suffix in ("-wal", "-journal")]
    live = any(file.exists() and file.stat().st_size > 0 for file in beside)
    return f"{name}?mode=ro" if live else f"{name}?immutable=1"


def _unescaped(text: str) -> str:
    # The kernel writes space, tab, newline and backslash as three octal digits.
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)
