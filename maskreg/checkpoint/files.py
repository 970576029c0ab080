"""Opening and reading the files of a checkpoint: regular files only, with ``pread``, and errors that name the file.

Files are not mapped into memory. A mapped page that cannot be read (a file that was cut short meanwhile, a network disk
that went away) kills the process with SIGBUS, where ``pread`` returns an error; and mapped pages count as the process's
memory, so that reading a large checkpoint would look like holding it. ``pread`` takes its offset as an argument, so any
number of threads can share a file without a lock.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import AbstractContextManager
from pathlib import Path

from maskreg.errors import (
    CorruptError,
    DataError,
    FormatError,
    LimitError,
    NotAllowedError,
    NotFoundError,
    UnavailableError,
    prefixed,
)

AGAIN = "download or copy the checkpoint again"
"""What helps against a damaged file."""


def in_folder(folder: Path) -> AbstractContextManager[None]:
    """Put the folder in front of messages that begin with the name of a file."""
    return prefixed(str(folder / "_")[:-1], DataError)


def read_whole(path: Path, max_bytes: int) -> bytes:
    """The content of a file.

    Raises:
        LimitError: it is larger than ``max_bytes``.
        CorruptError: it became shorter meanwhile.
        NotFoundError, FormatError, NotAllowedError, UnavailableError: see :func:`open_regular`.
    """
    handle, size = open_regular(path)
    try:
        with in_folder(path.parent):
            if size > max_bytes:
                raise LimitError(f"{path.name}: {size} bytes; the limit is {max_bytes}")
            data = bytearray(size)
            if not fill(handle, memoryview(data), 0, path):
                raise CorruptError(path.name, "cut short while it was read")
            return bytes(data)
    finally:
        os.close(handle)


def open_regular(path: Path) -> tuple[int, int]:
    """Open a regular file for reading; its handle and its size in bytes.

    Raises:
        NotFoundError: there is none.
        FormatError: not a regular file.
        NotAllowedError: it may not be read.
        UnavailableError: the disk does not answer, or too many files are open.
    """
    try:
        # O_NONBLOCK: opening a FIFO must not wait for somebody to write into it.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(f"{path}: a file of the checkpoint is missing") from error
    except PermissionError as error:
        raise NotAllowedError(f"{path}: not allowed to read it", hint=f"ls -l {path}") from error
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ELOOP):
            raise FormatError(f"{path}: not a regular file") from error
        hint = "ulimit -n 8192" if error.errno == errno.EMFILE else ""
        raise UnavailableError(f"{path}: {error.strerror}", hint=hint) from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise FormatError(f"{path}: not a regular file")
    return handle, status.st_size


def fill(handle: int, into: memoryview, offset: int, path: Path) -> bool:
    """Fill ``into`` from ``offset`` on; False when the file ends before."""
    done = 0
    while done < len(into):
        try:
            count = os.preadv(handle, [into[done:]], offset + done)
        except OSError as error:
            raise UnavailableError(f"{path}: {error.strerror}") from error
        if not count:
            return False
        done += count
    return True


def close_all(handles: list[int]) -> None:
    """Close files and forget them."""
    while handles:
        os.close(handles.pop())
