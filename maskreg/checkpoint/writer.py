"""Writing safetensors files from one stream of data, in order or at any place of it.

The stream is the data of all tensors, one shard's after another's::

    stream     0 ......... 40,000 ......... 70,000
    shard      0           1                          each is a file: its header, then its bytes of the stream

A shard's file is opened when the first byte of it comes. When the last one has come, a thread syncs and closes it,
while others are still being written.

Workers of a cluster write into the same files, on a disk that both see or in a bucket. On a disk, the process that
makes a checkpoint creates its files, counts what was written, syncs and renames them. Workers only put bytes at their
places: each opens a file for one piece, and closes it again. That costs microseconds beside a piece of mebibytes, and a
network disk has the piece when the file is closed. In a bucket, it begins the uploads, notes what was sent, and
completes them. Workers only send parts, with credentials of their own.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, Self, TypeVar, cast

from maskreg.bucket import BucketPath, Location
from maskreg.bucket.uploads import COMPLETING, Upload, Uploads, part_bytes, send_part
from maskreg.checkpoint.bucket_output import BucketOutput
from maskreg.checkpoint.layouts import INDEX_NAME
from maskreg.checkpoint.output import DiskOutput, OutputFile, PendingOutput
from maskreg.checkpoint.plan import OutputPlan
from maskreg.checkpoint.safetensors import Shard
from maskreg.disk import DirectFile, creating, phase
from maskreg.engine import is_here
from maskreg.errors import CannotCreateError, UsageError
from maskreg.parallel import Crew, each, result_of
from maskreg.tensors.info import numel_of

if TYPE_CHECKING:
    from typing import Any

    import numpy.typing as npt
    from typing_extensions import Buffer


class Task(Protocol):
    """Elements of a tensor, and where what becomes of them lies in the stream of all tensors' data."""

    @property
    def start(self) -> int:
        """The first element."""

    @property
    def stop(self) -> int:
        """One past the last."""

    @property
    def offset(self) -> int:
        """Of the first byte of the result."""

    @property
    def nbytes(self) -> int:
        """Size of the result; 0 for a task that only checks."""


TaskT = TypeVar("TaskT", bound=Task)


class Part(NamedTuple):
    """A part, ``number`` from 0 on, of the output's ``file``, an object that is uploaded."""

    file: int
    number: int


class Piece(NamedTuple, Generic[TaskT]):
    """Tasks whose results are written together.

    Attributes:
        tasks: neighbors in the output.
        part: that they make; None where each is written for itself.
        start, stop: bytes of the stream that the part has. The first and the last task may reach beyond them.
    """

    tasks: tuple[TaskT, ...]
    part: Part | None = None
    start: int = 0
    stop: int = 0

    def own(self, task: TaskT) -> slice:
        """Those bytes of a task's result that the part has."""
        return slice(max(0, self.start - task.offset), min(task.nbytes, self.stop - task.offset))

    @property
    def numel(self) -> int:
        """Elements of all tasks."""
        return sum(map(numel_of, self.tasks))


SENT_BYTES = 128 << 20
"""Bytes of a part that a worker sends: 16 blocks of 16-bit numbers, so that one in 16 is made twice."""


class Extent(NamedTuple):
    """What a file holds of the stream; its data begins behind the header."""

    header_bytes: int
    data_bytes: int


@dataclass(frozen=True)
class Layout:
    """How the stream is cut into files, one after another."""

    files: tuple[Extent, ...]

    @cached_property
    def _stops(self) -> list[int]:
        return list(accumulate(file.data_bytes for file in self.files))

    def cut(self, out: object, offset: int, data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
        """Cut data of the stream at the ends of files: the file's number, where in it the piece lies, and the piece."""
        for number, place, size in self.spans(out, offset, len(data)):
            yield number, place, data[:size]
            data = data[size:]

    def spans(self, out: object, offset: int, size: int) -> Iterator[tuple[int, int, int]]:
        """The same for so many bytes: their number in each file."""
        while size:
            number = bisect_right(self._stops, offset)
            if number == len(self.files):
                raise self.surplus(out)
            piece = min(size, self._stops[number] - offset)
            yield number, self._place(number, offset), piece
            offset, size = offset + piece, size - piece

    def parts(self, tasks: Iterable[TaskT]) -> Iterator[Piece[TaskT]]:
        """Tasks in their order, gathered to parts of files that are uploaded; see :mod:`maskreg.checkpoint.writing`.

        Services take parts of 5 MiB or more, but for the last of an object; Cloudflare R2 wants one size. The
        first holds the header too.
        """
        gathered: list[TaskT] = []
        part = 0
        for task in tasks:
            if not task.nbytes:
                yield Piece((task,))
                continue
            gathered.append(task)
            ((number, place, _),) = self.spans("", task.offset, task.nbytes)
            begin, size = task.offset - place, sum(self.files[number])
            length, end = part_bytes(size, SENT_BYTES), place + task.nbytes
            while gathered and end >= (stop := min((part + 1) * length, size)):
                yield Piece(tuple(gathered), Part(number, part), begin + part * length, begin + stop)
                gathered = [task] if end > stop else []
                part = 0 if stop == size else part + 1

    def phase(self, offset: int) -> int:
        """How far into a page of memory data for this place best begins, in bytes; then it need not be copied."""
        number = bisect_right(self._stops, offset)
        return phase(self._place(number, offset)) if number < len(self.files) else 0

    def surplus(self, out: object) -> CannotCreateError:
        """More data came than there is room for."""
        planned = self._stops[-1] if self._stops else 0
        return CannotCreateError(f"{out}: more data than the {planned:,} bytes that were planned")

    def _place(self, number: int, offset: int) -> int:
        file = self.files[number]
        return file.header_bytes + offset - (self._stops[number] - file.data_bytes)


# A writer that was entered can be pickled. It is then one of these two, with what workers need of it.


@dataclass(frozen=True)
class PartSender:
    """A writer into a bucket, in another process.

    Attributes:
        objects: of each file its key, what the service calls the upload, and the header that its first part begins
            with; empty for a file that has no parts.
    """

    out: BucketPath
    objects: tuple[tuple[str, str, bytes], ...]

    def phase(self, offset: int) -> int:
        """Anywhere."""
        return 0

    def send(self, part: Part, data: bytearray) -> str:
        """Send a part, whose data may be changed; returns what the service calls it."""
        key, upload_id, header = self.objects[part.file]
        if not part.number:
            data = bytearray(header) + data
        return send_part(_connected(self.out), key, upload_id, part.number + 1, data)["ETag"]


@lru_cache(maxsize=1)
def _connected(out: BucketPath) -> Uploads:
    return Uploads(out)


@dataclass(frozen=True)
class StagedWriter:
    """A writer onto a disk, in another process.

    Attributes:
        paths: of the unfinished files, as both processes know them; None for one that has no data.
    """

    out: Path
    layout: Layout
    paths: tuple[Path | None, ...]

    def phase(self, offset: int) -> int:
        """As :meth:`Layout.phase` says."""
        return self.layout.phase(offset)

    def put_at(self, offset: int, data: Buffer | npt.NDArray[Any]) -> None:
        """Write bytes that the driver counts."""
        with creating(self.out):
            for number, place, piece in self.layout.cut(self.out, offset, _bytes(data)):
                path = self.paths[number]
                if path is None:
                    raise self.layout.surplus(self.out)
                with closing(DirectFile(path, create=False)) as file:
                    file.write_at(place, piece)


class CheckpointWriter:
    """Takes the data of a plan's tensors as one stream, and makes a checkpoint of it.

    A context manager: leaving it without an exception checks that every planned byte was written and lets the
    output appear; an exception leaves nothing behind. Not for several threads, but for :meth:`write_at` and its parts.

    Attributes:
        out: where the checkpoint appears, absolute.
        is_file: the output is a single file, because the source is one and ``out`` ends in ``.safetensors``.
        skipped_files: small files of the plan that a single file has no room for.
    """

    def __init__(self, out: Location, plan: OutputPlan, *, force: bool) -> None:
        self.is_file = plan.single_file and out.suffix == ".safetensors" and len(plan.shards) == 1
        self.skipped_files = tuple(plan.files) if self.is_file else ()
        names = frozenset() if self.is_file else plan.names
        self._output: PendingOutput
        if isinstance(out, BucketPath):
            self._output = BucketOutput(
                out, self.is_file, "*.safetensors", names, plan.sources, force, index=plan.entry
            )
        else:
            self._output = DiskOutput(out, self.is_file, "*.safetensors", names, plan.sources, force)
        self.out = self._output.path
        self._plan = plan
        self._files = [_File(shard) for shard in plan.shards]
        self._layout = Layout(tuple(Extent(len(shard.header), shard.data_bytes) for shard in plan.shards))
        self._lock = threading.Lock()
        self._syncing: list[Future[None]] = []
        self._crew = Crew()
        self._syncer = ThreadPoolExecutor(1, thread_name_prefix="maskreg-sync", initializer=self._crew.enter)
        self._position = 0

    @property
    def kept_files(self) -> tuple[str, ...]:
        """At the end, files of a replaced directory that the output does not write; the new one has them too."""
        return self._output.kept

    def __enter__(self) -> Self:
        with self._errors():
            try:
                self._output.begin(self._plan.total_bytes)
                self._write_small_files()
            except BaseException as error:
                self._discard(error)
                raise
        return self

    def write(self, data: Buffer | npt.NDArray[Any]) -> None:
        """Append the next bytes, C-contiguous and of any length: they may end within a tensor or go on into the next.

        An array's elements are written as they lie in memory.
        """
        self.write_at(self._position, data)
        self._position += memoryview(cast("Buffer", data)).nbytes

    def write_at(self, offset: int, data: Buffer | npt.NDArray[Any]) -> None:
        """Write bytes at their place in the stream, in any order, each once; safe to call from several threads."""
        self.put_at(offset, data)
        self.wrote(offset, memoryview(cast("Buffer", data)).nbytes)

    def put_at(self, offset: int, data: Buffer | npt.NDArray[Any]) -> None:
        """The same, but for the count: the caller reports the bytes with :meth:`wrote`.

        For work that may run elsewhere. Bytes that are put twice must be the same.
        """
        with self._errors():
            for number, place, piece in self._layout.cut(self.out, offset, _bytes(data)):
                self._handle(number).write_at(place, piece)

    def wrote(self, offset: int, size: int) -> None:
        """Count bytes that :meth:`put_at` has written, wherever that was."""
        for number, _, piece in self._layout.spans(self.out, offset, size):
            file = self._files[number]
            with self._lock:
                file.missing -= piece
                if file.missing < 0:
                    raise self._layout.surplus(self.out)
                if not file.missing:
                    self._syncing.append(self._syncer.submit(file.close))

    def phase(self, offset: int) -> int:
        """As :meth:`Layout.phase` says."""
        return self._layout.phase(offset)

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.out, BucketPath):
            return PartSender, (self.out, tuple(self._uploaded_elsewhere()))
        with self._errors():
            for number, file in enumerate(self._files):
                if file.missing:
                    self._handle(number)
        return StagedWriter, (self.out, self._layout, tuple(file.path for file in self._files))

    def pieces(self, tasks: Iterable[TaskT]) -> Iterator[Piece[TaskT]]:
        """Tasks in the order of the output, as their results are written together on the engine at hand."""
        if is_here() or isinstance(self.out, Path):
            return (Piece((task,)) for task in tasks)
        return self._layout.parts(tasks)

    def send(self, part: Part, data: bytearray) -> str:
        """Not for this process, which writes with :meth:`put_at`."""
        raise UsageError("parts are sent by other processes")

    def sent(self, part: Part, receipt: str) -> None:
        """Take note of a part that was sent, wherever that was."""
        upload = self._files[part.file].handle
        assert isinstance(upload, Upload)
        upload.sent(part.number, receipt)

    def _uploaded_elsewhere(self) -> Iterator[tuple[str, str, bytes]]:
        """Begin the upload of every file with data, and tell how to go on with it."""
        for file in self._files:
            if file.missing and file.handle is None:
                size = len(file.shard.header) + file.shard.data_bytes
                file.handle = self._output.create(file.shard.file_name, size)
        opened = [file.handle if file.missing else None for file in self._files]
        # Large models have hundreds of files, and the service takes its time for each.
        each((upload for upload in opened if isinstance(upload, Upload)), Upload.begin, jobs=COMPLETING)
        for file, upload in zip(self._files, opened, strict=True):
            yield (
                (upload.path.key, upload.upload_id, file.shard.header) if isinstance(upload, Upload) else ("", "", b"")
            )

    def _errors(self) -> AbstractContextManager[None]:
        return creating(self.out) if isinstance(self.out, Path) else nullcontext()

    def _handle(self, number: int) -> OutputFile:
        """The open file of that number, made with its header when it is first needed."""
        if not self._files[number].missing:
            raise self._layout.surplus(self.out)
        with self._lock:
            file = self._files[number]
            return file.handle or self._open(file)

    def _open(self, file: _File) -> OutputFile:
        header = file.shard.header
        file.handle = handle = self._output.create(file.shard.file_name, len(header) + file.shard.data_bytes)
        file.path = handle.path if isinstance(handle, DirectFile) else None
        handle.write_at(0, memoryview(header))
        return handle

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._discard(error)
            return
        try:
            with self._errors():
                self._finish()
        except BaseException as failure:
            self._discard(failure)
            raise
        self._discard(None)

    def _write_small_files(self) -> None:
        if self.is_file:
            return
        files = dict(self._plan.files)
        if self._plan.index:
            files[INDEX_NAME] = self._plan.index
        for name, content in files.items():
            data = content if isinstance(content, bytes) else content.read_bytes()
            with closing(self._output.create(name, len(data))) as file:
                file.write_at(0, memoryview(data))
                file.sync()

    def _finish(self) -> None:
        missing = sum(file.missing for file in self._files)
        if missing:
            raise CannotCreateError(f"{self.out}: {missing:,} of {self._plan.data_bytes:,} bytes were never written")
        for file in self._files:
            if not file.shard.data_bytes:
                self._open(file)
                file.close()
        for synced in self._syncing:
            result_of(synced)
        self._output.commit()

    def _discard(self, error: BaseException | None) -> None:
        if error is not None:
            self._crew.abandon()
        self._syncer.shutdown()
        for file in self._files:
            file.abandon()
        left = self._output.discard()
        if left and error is not None:
            error.add_note(left)


class _File:
    """A weight file that is being written, and the bytes of its data that were not written yet.

    ``handle``: None before it is opened and after it is closed. ``path``: on a disk, since it was opened.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard, self.missing = shard, shard.data_bytes
        self.handle: OutputFile | None = None
        self.path: Path | None = None

    def close(self) -> None:
        """Sync and close it."""
        if self.handle is not None:
            try:
                self.handle.sync()
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Close it without syncing, unless it is closed."""
        if self.handle is not None:
            self.handle.close()
            self.handle = None


def _bytes(data: Buffer | npt.NDArray[Any]) -> memoryview:
    # The cast is for type checkers: before Python 3.12 they do not know that arrays are buffers.
    view = memoryview(cast("Buffer", data))
    return view.cast("B") if view.nbytes else memoryview(b"")
