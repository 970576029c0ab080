"""Opening and reading the files of a checkpoint, on a disk or in a bucket, with errors that name the file.

On a disk they are regular files, read with ``pread``. They are not mapped into memory: a mapped page that cannot be
read (a file that was cut short meanwhile, a network disk that went away) kills the process with SIGBUS, where ``pread``
returns an error; and mapped pages count as the process's memory, so that reading a large checkpoint would look like
holding it. ``pread`` takes its offset as an argument, so any number of threads can share a file without a lock.
Beside a training, where memory is short, :meth:`Checkpoint.map` has them mapped.

Beside the weights lie small files, which travel with a checkpoint, and other weights, which never do. Some small files
can run code on the machine that loads the checkpoint. Loaders run two kinds, when they are told to trust it: Python
files, and what a JSON document names under ``auto_map`` or ``custom_pipelines``, which can be a Python file beside it
or in any repository of the hub. Chat templates are no code in this sense: loaders render them in a sandbox.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import shlex
import stat
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

from maskreg import errors
from maskreg.bucket import BucketPath, Location
from maskreg.bucket.reading import BucketFile
from maskreg.checkpoint.base import Checkpoint
from maskreg.document import parse
from maskreg.limits import LIMITS
from maskreg.tensors.info import TensorInfo, shown

AGAIN = "download or copy the checkpoint again"
"""What helps against a damaged file."""


class OpenFile(Protocol):
    """A file that is open for reading, from any thread."""

    @property
    def path(self) -> Location:
        """Where it is."""

    @property
    def size(self) -> int:
        """In bytes."""

    def fill(self, into: memoryview, offset: int) -> bool:
        """Fill ``into`` from ``offset`` on; False when the file ends before.

        Raises:
            UnavailableError, CorruptError: the disk does not answer, or has another file now than was opened.
        """

    def at_hand(self, offset: int, size: int) -> memoryview | None:
        """``size`` bytes, at least one, where they lie in memory, not to be written to; None where ``fill`` reads."""

    def expect(self, offset: int, size: int) -> int:
        """Say that these bytes are read soon, so that they can be fetched meanwhile; how many are on their way."""

    def close(self) -> None:
        """Close it, while no other thread reads. Can be called twice."""


def in_folder(folder: Location) -> AbstractContextManager[None]:
    """Put the folder in front of messages that begin with the name of a file."""
    return errors.prefixed(str(folder / "_")[:-1], errors.DataError)


def read_whole(path: Location, max_bytes: int) -> bytes:
    """The content of a file."""
    with closing(open_regular(path)) as file, in_folder(path.parent):
        if file.size > max_bytes:
            raise errors.LimitError(f"{path.name}: {file.size} bytes; the limit is {max_bytes}")
        data = bytearray(file.size)
        if not file.fill(memoryview(data), 0):
            raise errors.CorruptError(path.name, "cut short while it was read")
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
        raise errors.FormatError(f"{path}: not a regular file")
    return _DiskFile(path, handle, status)


@contextmanager
def reading(path: Location) -> Iterator[None]:
    """Let only this package's errors leave a block that reads a file or a folder of a checkpoint."""
    try:
        yield
    except errors.MaskregError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise errors.NotFoundError(f"{path}: a file of the checkpoint is missing") from error
    except PermissionError as error:
        hint = f"ls -l {shlex.quote(str(path))}"
        raise errors.NotAllowedError(f"{path}: not allowed to read it", hint=hint) from error
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ELOOP):
            raise errors.FormatError(f"{path}: not a regular file") from error
        hint = "ulimit -n 8192" if error.errno == errno.EMFILE else ""
        raise errors.UnavailableError(f"{path}: {error.strerror}", hint=hint) from error


class _DiskFile:
    """A regular file; see :class:`OpenFile`."""

    def __init__(self, path: Path, handle: int, status: os.stat_result) -> None:
        self.path, self.size = path, status.st_size
        self._handle = handle
        self._mapped: memoryview | None = None

    def map(self) -> None:
        """Have everything at hand; not so where the file system maps no files."""
        with suppress(OSError):
            self._mapped = memoryview(mmap.mmap(self._handle, 0, prot=mmap.PROT_READ))

    def fill(self, into: memoryview, offset: int) -> bool:
        done = 0
        while done < len(into):
            try:
                count = os.preadv(self._handle, [into[done:]], offset + done)
            except OSError as error:
                raise errors.UnavailableError(f"{self.path}: {error.strerror}") from error
            if not count:
                return False
            done += count
        return True

    def at_hand(self, offset: int, size: int) -> memoryview | None:
        mapped = self._mapped
        return mapped[offset : offset + size] if mapped is not None and offset + size <= len(mapped) else None

    def expect(self, offset: int, size: int) -> int:
        # The system reads ahead by itself.
        return 0

    def close(self) -> None:
        self._mapped = None
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            os.close(handle)


class Files:
    """Files that were opened once each, and are closed together."""

    def __init__(self) -> None:
        self._opened: dict[Location, OpenFile] = {}
        self._release = weakref.finalize(self, _close_all, self._opened)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return not self._release.alive

    def open(self, path: Location) -> OpenFile:
        """The file at a path, opened if it is not yet; raises what :func:`open_regular` does."""
        if path not in self._opened:
            self._opened[path] = open_regular(path)
        return self._opened[path]

    def map(self) -> None:
        """Map those that are on a disk."""
        for file in self._opened.values():
            if isinstance(file, _DiskFile):
                file.map()

    def close(self) -> None:
        """Close all files; can be called twice."""
        self._release()


@contextmanager
def opening() -> Iterator[Files]:
    """Files that stay open unless the block raises."""
    files = Files()
    try:
        yield files
    except BaseException:
        files.close()
        raise


def _close_all(files: dict[Location, OpenFile]) -> None:
    while files:
        files.popitem()[1].close()


class StoredCheckpoint(Checkpoint):
    """A checkpoint in files that are open, with others beside them: in a folder, less its ``own``."""

    def __init__(
        self, path: Location, files: Files, companions: Location | None, own: frozenset[str], hub: str
    ) -> None:
        self.path, self.hub = path, hub
        self._files, self._companions, self._own = files, companions, own

    def _checked(self, name: str, start: int, stop: int) -> TensorInfo:
        """The tensor, whose span can be read."""
        info = self.tensors[name]
        if not 0 <= start <= stop <= info.numel:
            raise ValueError(f"tensor {name} has {info.numel} elements, not [{start}, {stop})")
        if self._files.closed:
            raise errors.UsageError(f"{self.path}: the checkpoint is closed", hint="open it again")
        return info

    def small_files(self) -> Mapping[str, Location]:
        """Files that travel with the weights."""
        if self._companions is None:
            return {}
        files = small_files(self._companions)
        return {name: path for name, path in files.items() if name not in self._own}

    def other_weights(self) -> tuple[str, ...]:
        """Names of what is never copied."""
        return () if self._companions is None else other_weights(self._companions, self._own)

    def close(self) -> None:
        """Release file handles, while no other thread reads."""
        self._files.close()


SMALL_FILES = ("*.json", "*.txt", "*.jinja", "*.model", "*.tiktoken", "*.py")
"""Patterns of configuration, tokenizer and code files; licenses travel too."""

_SMALL = re.compile(r".+\.(json|txt|jinja|model|tiktoken|py)|(licen[sc]e|notice|copying)([._-].*)?", re.I)
_WEIGHTS = re.compile(
    r"consolidated.*|.+\.index\.json|.+\.(safetensors|bin|pt|pth|ckpt|distcp|gguf|ggml|h5|msgpack|onnx|npz)", re.I
)
# Where hub models keep their weights in other formats.
_WEIGHT_FOLDERS = {"original", "onnx", "gguf", "metal"}
_UNCLEAN = re.compile(r"[\x00-\x1f\x7f-\x9f/\\]")


def is_plain_name(name: str) -> bool:
    """Whether ``name`` stays in its directory and is not hidden: no slash, no leading dot, no control character."""
    return bool(name) and not name.startswith(".") and not _UNCLEAN.search(name)


def is_small_file(name: str) -> bool:
    """Whether a file of this name travels with a checkpoint: configuration, tokenizer, code, license."""
    return is_plain_name(name) and not _WEIGHTS.fullmatch(name) and bool(_SMALL.fullmatch(name))


def check_small_file(name: str, size: int) -> None:
    """Refuse a file that must not be written beside a checkpoint."""
    if not is_small_file(name):
        raise errors.FormatError(f"not a file that travels with a checkpoint: {shown(name)}")
    if size > LIMITS.small_file_bytes:
        raise errors.LimitError(f"{name}: {size} bytes; the limit is {LIMITS.small_file_bytes}")


def _entries(directory: Location) -> list[Location]:
    return sorted(directory.iterdir(), key=attrgetter("name"))


def small_files(directory: Location) -> Mapping[str, Location]:
    """The small files of a checkpoint's directory by name, in name order; links are followed."""
    return {
        path.name: path
        for path in _entries(directory)
        if is_small_file(path.name) and path.is_file() and path.stat().st_size <= LIMITS.small_file_bytes
    }


def other_weights(directory: Location, own: frozenset[str]) -> tuple[str, ...]:
    """Names in a directory that are never copied, in order; names of folders end in ``/``."""
    names = []
    for path in _entries(directory):
        name = path.name
        if path.is_dir():
            if name in _WEIGHT_FOLDERS:
                names.append(f"{name}/")
        elif name in own:
            continue
        elif _WEIGHTS.fullmatch(name) or (
            is_small_file(name) and path.is_file() and path.stat().st_size > LIMITS.small_file_bytes
        ):
            names.append(name)
    return tuple(names)


_KEYS = ("auto_map", "custom_pipelines")
# A key can be written with escapes: "\u0061uto_map". All its characters are below 256.
_SIGNS = (*(key.encode() for key in _KEYS), rb"\u00")


def can_run_code(name: str, data: bytes, known: bytes | None = None) -> bool:
    """Whether a small file can run code that a file of the same name does not run already."""
    if data == known:
        return False
    if name.lower().endswith(".py"):
        return True
    if not name.lower().endswith(".json"):
        return False
    named = _named(data)
    return bool(named) and (known is None or named != _named(known))


def left_out_note(code: Iterable[str]) -> str:
    """The remark about small files that were left out because of :func:`can_run_code`."""
    return f"left out, because it can run code: {', '.join(code)}; the option 'with code' takes it along"


def _named(data: bytes) -> list[Any]:
    """What a JSON document names as code; the document itself when it cannot be parsed and might."""
    if not any(sign in data for sign in _SIGNS):
        return []
    try:
        return list(_values(parse(data, "a small file", max_bytes=LIMITS.small_file_bytes)))
    except errors.DataError:
        # Other parsers take more than this one: a key twice, NaN.
        return [data]


def _values(value: Any) -> list[Any]:
    if isinstance(value, dict):
        own = [item for key, item in value.items() if key in _KEYS and item]
        return own + [name for item in value.values() for name in _values(item)]
    return [name for item in value for name in _values(item)] if isinstance(value, list) else []
