"""Writing large files past the page cache.

Usually a written byte is copied into a page of the page cache, which the system has to find, account for and later
write to the disk. With ``O_DIRECT`` the disk fetches it from the program's own memory, which takes a twentieth of the
CPU time and no page cache. The system asks for whole pages: of the file, and of the memory. A piece of data may begin
and end anywhere, so its whole pages are written directly, and both ends through the page cache::

    pages of the file    |        |        |        |        |
    piece                     [head|----- direct ----|tail]

Its memory then has to begin as far into a page as the piece does in the file: its *phase*. A caller who asks
:func:`phase` for it, and :class:`maskreg.parallel.Buffers` for such memory, has its data written directly. Anything
else is written through the page cache: memory of another phase, short pieces, file systems without ``O_DIRECT``.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np

from maskreg.parallel import PAGE

DIRECT_BYTES = 1 << 20
"""Shorter pieces are written through the page cache, which writes several at once."""

_REFUSALS = (errno.EINVAL, errno.EOPNOTSUPP)
"""How file systems say that they write nothing directly: some when a file is opened, others when it is written."""

_WIDEST = 8
"""Bytes of the widest element: memory of any other phase could not be viewed as an array."""


def phase(offset: int) -> int:
    """How far into a page the memory of data for this offset of a file best begins, in bytes."""
    return 0 if offset % _WIDEST else offset % PAGE


class DirectFile:
    """A file that several threads write at once, each byte once; directly where that is possible.

    No page is written both ways: a direct write takes only the pages that a piece fills alone.

    Attributes:
        path: of the file.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        """Create the file, or open one that another process has created.

        Raises:
            OSError: it exists, or cannot be made; or to be opened, does not exist.
        """
        new = os.O_CREAT | os.O_EXCL if create else 0
        self.path = path
        self._cached = os.open(path, os.O_WRONLY | new | os.O_CLOEXEC, 0o666)
        try:
            self._direct = _open_direct(path, self._cached)
        except OSError:
            os.close(self._cached)
            raise

    def write_at(self, offset: int, data: memoryview) -> None:
        """Write bytes at their place.

        Args:
            offset: of the first byte in the file.
            data: bytes.

        Raises:
            OSError: the disk is full or fails.
        """
        first, last = -(-offset // PAGE) * PAGE, (offset + len(data)) // PAGE * PAGE
        if self._direct is None or len(data) < DIRECT_BYTES or (_address(data) - offset) % PAGE:
            first = last = offset
        head, tail = first - offset, last - offset
        self._write(offset, data[:head])
        written = self._write_direct(first, data[head:tail])
        self._write(first + written, data[head + written :])

    def _write_direct(self, offset: int, data: memoryview) -> int:
        """Write whole pages; returns how many bytes of them, which may be fewer."""
        done = 0
        while self._direct is not None and done < len(data):
            try:
                count = os.pwrite(self._direct, data[done:], offset + done)
            except OSError as error:
                if error.errno not in _REFUSALS:
                    raise
                break
            done += count
            if count % PAGE:
                break
        return done

    def _write(self, offset: int, data: memoryview) -> None:
        while data:
            count = os.pwrite(self._cached, data, offset)
            offset, data = offset + count, data[count:]

    def sync(self) -> None:
        """Make all that was written durable.

        Raises:
            OSError: the disk is full or fails.
        """
        os.fsync(self._cached)

    def close(self) -> None:
        """Close the file without syncing it."""
        os.close(self._cached)
        if self._direct is not None:
            os.close(self._direct)
            self._direct = None


def _open_direct(path: Path, handle: int) -> int | None:
    flag: int = getattr(os, "O_DIRECT", 0)
    # In file systems with blocks larger than a page, two pieces would share blocks without sharing pages.
    if not flag or os.fstatvfs(handle).f_bsize > PAGE:
        return None
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC | flag)
    except OSError as error:
        # A umask may leave a file that is open for writing, and cannot be opened so again.
        if error.errno not in (*_REFUSALS, errno.EACCES):
            raise
        return None


def _address(data: memoryview) -> int:
    return int(np.frombuffer(data, np.uint8).ctypes.data)
