"""Opening and reading the files of a checkpoint, on a disk or in a bucket, with errors that name the file.

On a disk they are regular files, read with ``pread``. They are not mapped into memory: a mapped page that cannot be
read (a file that was cut short meanwhile, a network disk that went away) kills the process with SIGBUS, where ``pread``
returns an error; and mapped pages count as the process's memory, so that reading a large checkpoint would look like
holding it. ``pread`` takes its offset as an argument, so any number of threads can share a file without a lock.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from maskreg.bucket import BucketPath, Location
from maskreg.bucket.reading import BucketFile
from maskreg.errors import (
    CorruptError,
    DataError,
    FormatError,
    LimitError,
    MaskregError,
    NotAllowedError,
    NotFoundError,
    UnavailableError,
    prefixed,
)

AGAIN = "download or copy the checkpoint again"
"""What helps against a damaged file."""


class OpenFile(Protocol):
    """A file that is open for reading, from any thread."""

    @property
    def path(self) -> Location:
        """Of the file."""

    @property
    def size(self) -> int:
        """In bytes."""

    # It can be pickled: another process opens the same version of the file, or raises CorruptError.

    def fill(self, into: memoryview, offset: int) -> bool:
        """Fill ``into`` from ``offset`` on; False when the file ends before.

        Raises:
            UnavailableError: the disk or the store does not answer.
            CorruptError: the file is not the one any more that was opened.
        """

    def at_hand(self, offset: int, size: int) -> memoryview | None:
        """At least one byte from ``offset`` on, in memory that is not written to; None where only ``fill`` reads them.

        Raises:
            UnavailableError, CorruptError: as ``fill`` does.
        """

    def expect(self, offset: int, size: int) -> int:
        """Say that these bytes are read soon, so that they may be fetched meanwhile; how many are on their way."""

    def close(self) -> None:
        """Close it; no other thread may still be reading. May be called twice."""


def in_folder(folder: Location) -> AbstractContextManager[None]:
    """Put the folder in front of messages that begin with the name of a file."""
    return prefixed(str(folder / "_")[:-1], DataError)


def read_whole(path: Location, max_bytes: int) -> bytes:
    """The content of a file."""
    with closing(open_regular(path)) as file, in_folder(path.parent):
        if file.size > max_bytes:
            raise LimitError(f"{path.name}: {file.size} bytes; the limit is {max_bytes}")
        data = bytearray(file.size)
        if not file.fill(memoryview(data), 0):
            raise CorruptError(path.name, "cut short while it was read")
        return bytes(data)


def same_content(left: Location, right: Location) -> bool:
    """Whether two small files hold the same bytes."""
    return left.stat().st_size == right.stat().st_size and left.read_bytes() == right.read_bytes()


def names_in(folder: Location) -> frozenset[str]:
    """Names of what a folder holds; none for one that cannot be listed: opening it says why."""
    if isinstance(folder, BucketPath):
        return frozenset(folder.bucket.folder(folder.key))
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208  # names alone
    except OSError:
        return frozenset()


def open_regular(path: Location) -> OpenFile:
    """Open a regular file for reading."""
    if isinstance(path, BucketPath):
        return BucketFile(path)
    with reading(path):
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise FormatError(f"{path}: not a regular file")
    return _DiskFile(path, handle, status)


@contextmanager
def reading(path: Location) -> Iterator[None]:
    """Let only this package's errors leave a block that reads a file or a folder of a checkpoint."""
    try:
        yield
    except MaskregError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(f"{path}: a file of the checkpoint is missing") from error
    except PermissionError as error:
        raise NotAllowedError(f"{path}: not allowed to read it", hint=f"ls -l {path}") from error
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ELOOP):
            raise FormatError(f"{path}: not a regular file") from error
        hint = "ulimit -n 8192" if error.errno == errno.EMFILE else ""
        raise UnavailableError(f"{path}: {error.strerror}", hint=hint) from error


def _reopened(path: Path, size: int, written_ns: int) -> OpenFile:
    """The file that another process has open, by the path that both know."""
    file = open_regular(path)
    assert isinstance(file, _DiskFile)
    if (file.size, file.written_ns) != (size, written_ns):
        file.close()
        raise CorruptError(str(path), "replaced by another file while it was read", hint="run the same command again")
    return file


class _DiskFile:
    """A regular file; see :class:`OpenFile`."""

    def __init__(self, path: Path, handle: int, status: os.stat_result) -> None:
        self.path, self.size, self.written_ns = path, status.st_size, status.st_mtime_ns
        self._handle = handle

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.path.absolute(), self.size, self.written_ns)

    def fill(self, into: memoryview, offset: int) -> bool:
        done = 0
        while done < len(into):
            try:
                count = os.preadv(self._handle, [into[done:]], offset + done)
            except OSError as error:
                raise UnavailableError(f"{self.path}: {error.strerror}") from error
            if not count:
                return False
            done += count
        return True

    def at_hand(self, offset: int, size: int) -> memoryview | None:
        return None

    def expect(self, offset: int, size: int) -> int:
        # The system reads ahead by itself.
        return 0

    def close(self) -> None:
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            os.close(handle)


def close_all(files: list[OpenFile]) -> None:
    """Close files and forget them."""
    while files:
        files.pop().close()
