"""A store in a directory, safe against crashes, other processes and network file systems without locks.

::

    write .tmp/HOST-PID-NONCE, fsync          same file system, invisible to readers
    put:    rename it to the key              atomic: readers see the old or the new bytes
    create: link it to the key                atomic, and fails when the name exists (rename would replace)
    fsync the folder, and every one above it  the new names survive a power failure

``delete`` removes folders that become empty, so a writer can lose the folder it has just made; it then makes it again.
For example, A creates ``a/2`` while B deletes ``a/1``::

    A: mkdir a                B: unlink a/1
                              B: rmdir a
    A: link .tmp/X to a/2  -> ENOENT, so mkdir a and link again
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import socket
import stat
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from typing import Literal
from uuid import uuid4

from maskreg.disk import barrier, make_folder, make_root, nearest_existing, new_file, sync_folder, write_all
from maskreg.errors import (
    CannotCreateError,
    CorruptError,
    LimitError,
    MaskregError,
    NoSpaceError,
    NotFoundError,
    RefusedError,
    UnavailableError,
    translating,
)
from maskreg.store.base import TEMPORARY, ObjectInfo, Store, check_key, check_prefix, is_clean

_PARENT_TRIES = 100
_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}
# Errors of link(2) on file systems without hard links: FAT, some network and user-space ones.
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


class FileStore(Store):
    """Objects as files below one directory; ``a/b`` is the file ``a/b``.

    Symbolic links below the root are never followed: no key reads or writes anything outside. What is neither a file
    nor a folder is listed, and so is an empty folder that has the name of a document (``.json``); reading it raises
    ``CorruptError``. One key cannot lie under another (``a`` and ``a/b``): the second is refused with
    ``CannotCreateError``.

    Args:
        root: the directory. A new one is made for its owner alone, when the first object is written; what is written
            has the permissions of the directory, see :mod:`maskreg.disk`.
        existing: never make the directory: while it is not there, its disk is not mounted or it was moved, and every
            method raises ``UnavailableError``. An empty one in its place would look like a store that lost everything.
        sync: wait until the disk has what was written. Without, a power failure can lose the last seconds; other
            processes see each object whole or not at all either way.
    """

    def __init__(self, root: Path, *, existing: bool = False, sync: bool = True) -> None:
        self.root = Path(os.path.realpath(root))
        self._existing = existing
        self._sync = sync
        self.url = self.root.as_uri()

    @property
    def files(self) -> FileStore:
        """The objects as files of this machine."""
        return self

    def path(self, key: str) -> Path:
        """The file of an object, which need not exist."""
        path = self._place(key)
        if path.is_symlink():
            raise _is_link(path)
        return path

    def _place(self, key: str) -> Path:
        # As `path`, where the object itself can be a link.
        path = self.root / check_key(key)
        # Equal as text exactly when no component is a link.
        if os.path.realpath(path.parent) != str(path.parent):
            raise _is_link(path)
        return path

    def get(self, key: str, *, max_bytes: int) -> bytes:
        """The whole object; see :class:`~maskreg.store.base.Store`."""
        with self.opened(key, max_bytes) as (file, size):
            return file.read(size)

    def get_into(self, key: str, into: memoryview) -> int:
        """Write the whole object to the beginning of ``into``; returns its size, and raises what :meth:`get` raises."""
        with self.opened(key, len(into)) as (file, size):
            return file.readinto(into[:size])

    @contextlib.contextmanager
    def opened(self, key: str, max_bytes: int) -> Iterator[tuple[BufferedReader, int]]:
        """The object's file and size, to be read in pieces; raises what :meth:`get` raises."""
        with self.errors("read", key):
            path = self._place(key)
            if not stat.S_ISREG(mode := path.lstat().st_mode):
                kind = (
                    "a folder" if stat.S_ISDIR(mode) else "a symbolic link" if stat.S_ISLNK(mode) else "a special file"
                )
                hint = f"rmdir {shlex.quote(str(path))}" if stat.S_ISDIR(mode) else ""
                raise CorruptError(key, f"{kind}, where a file should be", hint=hint)
            with open(path, "rb", opener=_open_without_waiting) as file:
                status = os.fstat(file.fileno())
                if status.st_size > max_bytes:
                    raise LimitError(f"{key}: {status.st_size} bytes; the limit is {max_bytes}")
                yield file, status.st_size

    def head(self, key: str) -> ObjectInfo | None:
        """The object's size and time, or None."""
        try:
            with self.errors("read", key):
                status = self._place(key).lstat()
        except NotFoundError:
            return None
        return None if stat.S_ISDIR(status.st_mode) else _info(key, status)

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object; durable when this returns."""
        with self.errors("write", key):
            path = self.path(key)
            with self._temporary(data) as temporary:
                for _ in in_folder(path.parent):
                    with contextlib.suppress(FileNotFoundError):
                        temporary.replace(path)
                        break
            self._sync_folders(path.parent)

    def create(self, key: str, data: bytes) -> bool:
        """Write an object only if there is none; durable when this returns True."""
        with self.errors("write", key):
            path = self.path(key)
            if path.is_file():
                return False
            with self._temporary(data) as temporary:
                for _ in in_folder(path.parent):
                    with contextlib.suppress(FileNotFoundError):
                        try:
                            os.link(temporary, path)
                        except FileExistsError:
                            return self._is_taken(path)
                        except OSError as error:
                            if error.errno not in _NO_LINKS:
                                raise
                            if not self._copy_exclusively(data, path):
                                return False
                        break
            self._sync_folders(path.parent)
            return True

    def _is_taken(self, path: Path) -> Literal[False]:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a directory")
        return False

    def _copy_exclusively(self, data: bytes, path: Path) -> bool:
        # Without links, O_EXCL on the final name is the only create-once; a crash here can leave a short object.
        try:
            file = new_file(path)
        except FileExistsError:
            return self._is_taken(path)
        with file:
            try:
                write_all(file, data)
                os.fsync(file.fileno())
            except BaseException:
                path.unlink()
                raise
        return True

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects whose key begins with ``prefix``, in key order."""
        check_prefix(prefix)
        folder = self.path(prefix[:-1]) if prefix else self.root
        return self._walk(str(folder), prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, and the folders that become empty; a missing object is not an error."""
        touched = set()
        for key in keys:
            with self.errors("delete", key):
                path = self._place(key)
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    if not stat.S_ISDIR(path.lstat().st_mode):
                        path.unlink()
                        touched.add(path.parent)
        for folder in touched:
            with self.errors("delete", str(folder)):
                self._sync_folders(self._prune(folder))

    def make(self) -> None:
        """Make the directory with the permissions that the umask leaves; one that exists stays as it is."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            kind = RefusedError if error.errno in _DENIED else CannotCreateError
            fault = f"cannot make the folder {self.root}: {error.strerror}"
            raise kind(fault, hint=f"ls -ld {nearest_existing(self.root)}") from error

    def close(self) -> None:
        """Do nothing: every file is closed after its use."""

    def clock(self) -> datetime:
        """The time by the file system's clock, which over a network is the server's."""
        with self.errors("read", "the clock"):
            if not self.root.exists() or not any(self.root.iterdir()):
                # Asking makes nothing where there is nothing.
                return datetime.now(UTC)
        try:
            with self._temporary(b"") as temporary:
                return _utc(temporary.stat().st_mtime_ns)
        except OSError:
            return datetime.now(UTC)

    def _walk(self, folder: str, prefix: str) -> Iterator[ObjectInfo]:
        with self.errors("list", prefix or "/"):
            try:
                with os.scandir(folder) as entries:
                    # Folders sort with their slash, as their keys do: "a-b/x" comes before "a/x".
                    rows = sorted((e.name + "/" * e.is_dir(follow_symlinks=False), e) for e in entries)
                    if not rows and prefix.endswith(".json/"):
                        yield _info(prefix[:-1], Path(folder).lstat())
            except (FileNotFoundError, NotADirectoryError):
                return
        for name, entry in rows:
            key = prefix + name
            if not is_clean(key.removesuffix("/")):
                continue
            if name.endswith("/"):
                yield from self._walk(entry.path, key)
                continue
            if entry.is_symlink() and Path(entry.path).is_dir() and not name.endswith(".json"):
                # Anything can lie behind it.
                raise _is_link(Path(entry.path))
            try:
                info = _info(key, entry.stat(follow_symlinks=False))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._translate(error, "list", key) from error
            yield info

    @contextlib.contextmanager
    def _temporary(self, data: bytes) -> Iterator[Path]:
        folder = self.root / TEMPORARY
        if not self.root.exists():
            make_root(self.root)
            sync_folder(self.root.parent)
        make_folder(folder)
        if folder.is_symlink():
            raise _is_link(folder)
        path = folder / f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex}"
        try:
            with new_file(path) as file:
                write_all(file, data)
                if self._sync:
                    os.fsync(file.fileno())
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _prune(self, folder: Path) -> Path:
        while folder != self.root:
            try:
                folder.rmdir()
            except OSError as error:
                if error.errno not in _ABSENT:
                    break
            folder = folder.parent
        return folder

    def _sync_folders(self, folder: Path) -> None:
        # Every level: another process might have made one a moment ago and not synced it yet.
        while self._sync and folder.is_relative_to(self.root):
            with contextlib.suppress(FileNotFoundError):
                sync_folder(folder)
            folder = folder.parent

    @contextlib.contextmanager
    def errors(self, verb: str, key: str) -> Iterator[None]:
        """Raise this package's errors in place of the operating system's."""
        if self._existing and not self.root.is_dir():
            raise UnavailableError(f"{self.root}: the folder of this registry is not there", folder=str(self.root))
        with translating((OSError,), lambda error: self._translate(error, verb, key)):
            yield

    def _translate(self, error: OSError, verb: str, key: str) -> MaskregError:
        fault = f"cannot {verb} {key} in {self.root}: {error.strerror}"
        if error.errno == errno.ELOOP:
            return _is_link(self.root / key)
        if error.errno in _FULL:
            return NoSpaceError(fault, hint=f"df -h {self.root}")
        if error.errno in _DENIED:
            # Which part of the path refused, as far as that can be told: the key's own, or one above it.
            path = Path(error.filename) if isinstance(error.filename, str) else self.root / key
            return RefusedError(fault, hint=f"ls -ld {shlex.quote(str(barrier(path)))}")
        if verb == "write":
            return CannotCreateError(fault)
        if error.errno in _ABSENT:
            return NotFoundError(f"{self.root}: there is no {key}")
        return UnavailableError(fault)

    def __repr__(self) -> str:
        return f"FileStore({str(self.root)!r})"


def _open_without_waiting(path: str, flags: int) -> int:
    # Opening a named pipe would wait for a writer.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def in_folder(folder: Path) -> Iterator[None]:
    """Attempts to put something into a folder, each after it was made; the caller ends the loop when one succeeds.

    Another process that deletes the folder's last object removes the folder, possibly between mkdir and the move.
    """
    for _ in range(_PARENT_TRIES):
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            make_folder(folder)
            yield
    raise NotADirectoryError(errno.ENOTDIR, "a component of its path is not a directory")


def _is_link(path: Path) -> RefusedError:
    return RefusedError(f"{path}: symbolic links inside a store are not followed")


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, _utc(status.st_mtime_ns))


def _utc(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)
