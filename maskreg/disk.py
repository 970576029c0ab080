"""Files: one atomic write, permissions, large files past the page cache, free space, and failures of the disk.

A registry's folder is made for its owner alone (:func:`make_root`), and what is made inside has the permissions of the
folder that it is in (:func:`make_folder`, :func:`new_file`)::

    registry 0700                     folders 0700, files 0600 under any umask
    registry 0755, umask 022          0755, 0644: others read, as the folder allows
    registry 2770 or 0775 (a group)   2770, 0660: the group writes, even with umask 022; never the world

Usually a written byte is copied into a page of the page cache, which the system has to find, account for and later
write to the disk. With ``O_DIRECT`` the disk fetches it from the program's own memory, which takes a twentieth of the
CPU time and no page cache. The system asks for whole pages: of the file, and of the memory. A piece of data can begin
and end anywhere, so its whole pages are written directly, and both ends through the page cache::

    pages of the file    |        |        |        |        |
    piece                     [head|----- direct ----|tail]

Its memory then has to begin as far into a page as the piece does in the file: its *phase*. A caller who asks
:func:`phase` for it, and :class:`maskreg.parallel.Buffers` for such memory, has its data written directly. Anything
else is written through the page cache: memory of another phase, short pieces, file systems without ``O_DIRECT``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shlex
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from maskreg.errors import CannotCreateError, NoSpaceError, OutputExistsError, UsageError, translating
from maskreg.parallel import PAGE

_FULL = (errno.ENOSPC, errno.EDQUOT)
# Errors that say that no file can be created under such a path.
_IMPOSSIBLE = (errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
# A draft's name begins with its file's name; cut, so that it is not too long where the file's name is not.
_DRAFT_PREFIX_LENGTH = 40
_DRAFT = re.compile(r"^\..+\.(?P<host>\w+)-(?P<pid>[1-9][0-9]{0,9})-[0-9a-f]{8}\.draft$", re.ASCII | re.DOTALL)
# Names of the drafts that this process is writing. A process number alone does not tell: in a container, a dead
# predecessor often had the same one.
_open_drafts: set[str] = set()
# Held by the thread that makes a folder for a group.
_making = Lock()


@contextmanager
def replacing(path: Path, *, mode: int | None = None, force: bool = True, sync: bool = True) -> Iterator[BinaryIO]:
    """A file to write that appears under its name when it is whole, and not at all when writing fails.

    Other processes see the old file or the new one, never a part of either::

        remove  drafts that killed processes left
        write   .NAME.HOST-PID-NONCE.draft   beside path, so that a rename stays on one file system
        fsync   the draft                    else a crash could leave the name with no data behind it
        rename  the draft to path            atomic; with force=False a link, which never replaces
        fsync   the folder                   makes the new name durable

    Args:
        path: the file; folders that it lacks are made.
        mode: permission bits; None keeps the mode of the file that is replaced, or takes the process's default.
        force: replace a file that exists.
        sync: make the file durable before this returns; False where losing it in a power failure does not matter.
    """
    status = _status(path)
    if status is not None:
        if not stat.S_ISREG(status.st_mode):
            raise OutputExistsError(path, reason="and is not a regular file", hint="choose another output")
        if not force:
            raise OutputExistsError(path)
        mode = stat.S_IMODE(status.st_mode) & 0o777 if mode is None else mode
    draft = _draft_of(path)
    _open_drafts.add(draft.name)
    try:
        with _impossible(path):
            make_folder(path.parent)
            remove_drafts(path.parent, _draft_prefix(path))
            new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            handle = os.open(draft, new, 0o666 if mode is None else mode)
        with os.fdopen(handle, "wb") as file:
            if mode is not None:
                # The process's umask has narrowed the mode that the file was created with.
                os.fchmod(handle, mode)
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if force:
            draft.replace(path)
        else:
            rename_new(draft, path)
    finally:
        with suppress(OSError):
            draft.unlink()
        _open_drafts.discard(draft.name)
    if sync:
        sync_folder(path.parent)


def remove_drafts(folder: Path, prefix: str = ".") -> tuple[Path, ...]:
    """Remove what :func:`replacing` left in a folder when its process was killed; drafts of other machines stay."""
    removed: list[Path] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            match = _DRAFT.search(entry.name) if entry.name.startswith(prefix) else None
            if match and match["host"] == _host() and not _is_open(entry.name, int(match["pid"])):
                # In a shared folder not everything is ours to remove.
                with suppress(OSError):
                    Path(entry.path).unlink()
                    removed.append(Path(entry.path))
    return tuple(removed)


def rename_new(work: Path, path: Path) -> None:
    """Rename a file or directory, and replace nothing but an empty directory."""
    try:
        if work.is_dir():
            work.rename(path)
            return
        # A rename silently replaces a file that has just appeared; a link never does.
        try:
            os.link(work, path)
        except FileExistsError:
            raise
        except OSError:
            # The file system has no links.
            work.rename(path)
        else:
            work.unlink()
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            reason, hint = "and was just written by another process", "choose another output, or replace it"
            raise OutputExistsError(path, reason=reason, hint=hint, options={"force": True}) from error
        raise


def creating(path: Path) -> AbstractContextManager[None]:
    """Report the operating system's errors as failures to write ``path``."""

    def unwritten(error: OSError) -> CannotCreateError:
        if is_full(error):
            return NoSpaceError(f"{path}: the disk became full", hint=f"df -h {shlex.quote(str(path.parent))}")
        hint = f"ls -ld {shlex.quote(str(barrier(path)))}"
        return CannotCreateError(f"{path}: cannot be written ({error.strerror or error})", hint=hint)

    return translating((OSError,), unwritten)


def refuse_url(out: str) -> None:
    """Refuse a URL as an output: a path of that name would be a folder called ``s3:``."""
    if "://" in out:
        raise UsageError(
            f"{out} is a URL, and outputs are written to a disk", hint="write to a folder, and copy that there"
        )


@contextmanager
def taking_turns(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made, while a file of it is read and replaced: other processes wait here."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # NFS locks no folders: there the last one wins
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def occupied(path: Path) -> bool:
    """Whether something has that name, a dangling link included."""
    return _status(path) is not None


def make_root(folder: Path) -> None:
    """Make the folder of a registry, for its owner alone; one that exists stays as it is."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, with the permissions of the folder that each is made in."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    mode = folder.parent.stat().st_mode
    shared = _shared(mode, 0o070)
    try:
        if shared:
            _make_shared(folder, mode & 0o777, shared)
        else:
            folder.mkdir(mode & 0o777)
    except OSError:
        if not folder.is_dir():
            raise


def _make_shared(folder: Path, mode: int, shared: int) -> None:
    # The umask can take the group's bits, and what others make inside before they are back would never have them. So
    # the folder gets its name last. The rename replaces an empty folder, which another process has just made alike.
    draft = _draft_of(folder)
    with _making:
        if folder.is_dir():
            return
        draft.mkdir(mode)
        try:
            draft.chmod(stat.S_IMODE(draft.stat().st_mode) | shared)
            draft.rename(folder)
        except OSError:
            draft.rmdir()
            raise


def new_file(path: Path, *, replace: bool = False) -> FileIO:
    """Open a new file to write, without a buffer, with the permissions of its folder."""
    mode = path.parent.stat().st_mode
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if replace else os.O_EXCL)
    handle = os.open(path, flags, mode & 0o666)
    if shared := _shared(mode, 0o060):
        with suppress(PermissionError):  # a file of another user, which is replaced
            os.fchmod(handle, stat.S_IMODE(os.fstat(handle).st_mode) | shared)
    return FileIO(handle, "wb")


def write_all(file: FileIO, data: bytes | memoryview) -> None:
    """Write all of ``data``, however many calls that takes."""
    view = memoryview(data).cast("B")
    while view:
        view = view[file.write(view) :]


def _shared(mode: int, bits: int) -> int:
    # What the umask took from a group that can write; a folder like /tmp, open to all, names no group.
    return mode & bits if mode & 0o020 and not mode & 0o002 else 0


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the file system can."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems cannot sync a folder; they make names durable by themselves.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(handle)


def nearest_existing(path: Path) -> Path:
    """``path``, or the nearest folder above it that exists."""
    path = path.absolute()
    return next(candidate for candidate in (path, *path.parents) if candidate.exists())


def barrier(path: Path) -> Path:
    """The first folder of ``path`` that this process cannot enter, or the last part of ``path`` that exists."""
    path = path.absolute()
    last = Path(path.anchor)
    for part in (*reversed(path.parents), path):
        if not os.path.lexists(part):
            break
        last = part
        if part.is_dir() and not _may(part, os.X_OK):
            break
    return last


def is_read_only(folder: Path) -> bool:
    """Whether nothing can be created in a folder."""
    return not _may(folder, os.W_OK | os.X_OK)


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def is_alive(pid: int) -> bool:
    """Whether a process of this number runs on this machine."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def is_full(error: OSError) -> bool:
    """Whether an error says that the disk or the quota is full."""
    return isinstance(error, NoSpaceError) or error.errno in _FULL


def _draft_prefix(path: Path) -> str:
    return f".{path.name[:_DRAFT_PREFIX_LENGTH]}."


def _draft_of(path: Path) -> Path:
    return path.with_name(f"{_draft_prefix(path)}{_host()}-{os.getpid()}-{secrets.token_hex(4)}.draft")


def _is_open(draft: str, pid: int) -> bool:
    return draft in _open_drafts if pid == os.getpid() else is_alive(pid)


def _host() -> str:
    return re.sub(r"\W", "_", socket.gethostname(), flags=re.ASCII) or "localhost"


def _status(path: Path) -> os.stat_result | None:
    with _impossible(path):
        try:
            return path.lstat()
        except FileNotFoundError:
            return None


@contextmanager
def _impossible(path: Path) -> Iterator[None]:
    """Say of a path under which no file can be created that it is not one."""
    try:
        yield
    except OSError as error:
        if error.errno not in _IMPOSSIBLE:
            raise
        if error.errno == errno.EEXIST:
            raise CannotCreateError(f"{path.parent} is not a folder", hint="choose another name") from error
        # Some file systems, such as /proc, say of a folder that is there that it is not.
        is_there = error.errno == errno.ENOENT
        fault = f"nothing can be created in {barrier(path.parent)}" if is_there else os.strerror(error.errno)
        raise CannotCreateError(f"{path}: {fault}", hint="choose another name") from error


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

    def __init__(self, path: Path) -> None:
        """Create the file."""
        self.path = path
        self._cached = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            self._direct = _open_direct(path, self._cached)
        except OSError:
            os.close(self._cached)
            raise

    def write_at(self, offset: int, data: memoryview) -> None:
        """Write bytes at their place."""
        first, last = -(-offset // PAGE) * PAGE, (offset + len(data)) // PAGE * PAGE
        if self._direct is None or len(data) < DIRECT_BYTES or (_address(data) - offset) % PAGE:
            first = last = offset
        head, tail = first - offset, last - offset
        self._write(offset, data[:head])
        written = self._write_direct(first, data[head:tail])
        self._write(first + written, data[head + written :])

    def _write_direct(self, offset: int, data: memoryview) -> int:
        """Write whole pages; returns how many bytes of them, which can be fewer."""
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
        """Make all that was written durable."""
        os.fsync(self._cached)
        if self._direct is not None and sys.platform == "linux":
            # The ends of pieces: where pages are cached, the system reads the pages around them one by one.
            os.posix_fadvise(self._cached, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Close the file without syncing it."""
        os.close(self._cached)
        if self._direct is not None:
            os.close(self._direct)
            self._direct = None


def preload(path: Path) -> None:
    """Read a file into the page cache, which direct writes pass by.

    Every byte is copied, into nothing: in a virtual machine the first touch of new memory is slow, and a reader who
    maps the file would wait for it.
    """
    buffer = bytearray(DIRECT_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def _open_direct(path: Path, handle: int) -> int | None:
    flag: int = getattr(os, "O_DIRECT", 0)
    # In file systems with blocks larger than a page, two pieces would share blocks without sharing pages.
    if not flag or os.fstatvfs(handle).f_bsize > PAGE:
        return None
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC | flag)
    except OSError as error:
        # A umask can leave a file that is open for writing, and cannot be opened so again.
        if error.errno not in (*_REFUSALS, errno.EACCES):
            raise
        return None


def _address(data: memoryview) -> int:
    import numpy as np  # the command line starts without it

    return int(np.frombuffer(data, np.uint8).ctypes.data)


def require_space(path: Path, needed: int, *, spare: int = 0, what: str = "the output", **facts: object) -> None:
    """Check before the first byte is written that the disk of ``path`` has room.

    Args:
        path: what will be written, or its folder; need not exist yet.
        needed: bytes.
        spare: bytes that shall stay free.
        what: the subject of the message.
        facts: of the error; without any, its hint shows the disk.
    """
    available = free_bytes(path)
    if needed + spare > available:
        beside = f" and {spare:,} to spare" if spare else ""
        raise NoSpaceError(
            f"{path}: {what} needs {needed:,} bytes{beside}, and {available:,} are free",
            hint="" if facts else _disk_step(path),
            needed=needed,
            **facts,
        )


@contextmanager
def filling(
    path: Path,
    needed: int | Callable[[], int],
    *,
    what: str = "the output",
    left: str = "what was written is removed",
    **facts: object,
) -> Iterator[None]:
    """Report a disk that becomes full during the work, which :func:`require_space` cannot foresee, with both figures.

    It is entered first and left last, so that the free bytes are those after the work was undone::

        with filling(path, size, what="the page"), replacing(path) as file:
            file.write(...)

        x.html: the disk became full; the page needs 618,152 bytes, and 307,200 are free; what was written is removed

    Args:
        path: what is written, or its folder.
        needed: bytes that the work still needs; a function where that is known later.
        what: the subject of the message.
        left: what has become of the unfinished work.
        facts: of the error; without any, its hint shows the disk.
    """
    try:
        yield
    except OSError as error:
        is_explained = isinstance(error, NoSpaceError) and error.needed is not None
        if is_explained or not is_full(error):
            raise
        size = needed() if callable(needed) else needed
        raise NoSpaceError(
            f"{path}: the disk became full; {what} needs {size:,} bytes, and {free_bytes(path):,} are free; {left}",
            hint="" if facts else _disk_step(path),
            needed=size,
            **facts,
        ) from error


def free_bytes(path: Path) -> int:
    """Bytes free on the disk where ``path`` is, or would be."""
    return shutil.disk_usage(nearest_existing(path)).free


def _disk_step(path: Path) -> str:
    return f"df -h {shlex.quote(str(nearest_existing(path)))}"
