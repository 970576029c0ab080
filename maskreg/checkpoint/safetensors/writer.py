"""Writing safetensors files from one stream of data, in order or at any place of it.

The stream is the data of all tensors, one shard's after another's::

    stream     0 ......... 40,000 ......... 70,000
    shard      0           1                          each is a file: its header, then its bytes of the stream

A shard's file is opened when the first byte of it comes. When the last one has come, a thread syncs and closes it,
while others are still being written.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self, cast

from maskreg.bucket import BucketPath, Location
from maskreg.bucket.uploads import COMPLETING, Upload, Uploads, part_bytes, send_part
from maskreg.checkpoint.base import Part, Piece, TaskT, single
from maskreg.checkpoint.bucket_output import OutputFile, pending_output
from maskreg.checkpoint.layouts import INDEX_NAME
from maskreg.checkpoint.safetensors.header import Shard
from maskreg.disk import DirectFile, creating, phase
from maskreg.engine import is_here
from maskreg.errors import CannotCreateError, UsageError
from maskreg.parallel import Crew, each, result_of
from maskreg.tensors.info import TensorInfo

if TYPE_CHECKING:
    from typing import Any

    import numpy.typing as npt
    from typing_extensions import Buffer


# Writing from the workers of a cluster into files that another process makes, on a disk that both see or in a bucket.
#
# On a disk, the process that makes a checkpoint creates its files, counts what was written, syncs and renames them.
# Workers only put bytes at their places: each opens a file for one piece, and closes it again. That costs microseconds
# beside a piece of mebibytes, and a network disk has the piece when the file is closed.
#
# In a bucket, it begins the uploads, notes what was sent, and completes them. Workers only send parts, with credentials
# of their own.


class ObjectParts(NamedTuple):
    """An object whose upload has begun.

    Attributes:
        key: of the object; empty for one that has no parts.
        upload_id: what the service calls the upload.
        header: the file's, which its first part begins with.
    """

    key: str
    upload_id: str
    header: bytes


@dataclass(frozen=True)
class PartSender:
    """What a writer is in another process.

    Attributes:
        out: where the checkpoint will appear.
        objects: its weight files, in order.
    """

    out: BucketPath
    objects: tuple[ObjectParts, ...]

    def phase(self, offset: int) -> int:
        """Anywhere; see :meth:`maskreg.checkpoint.base.CheckpointWriter.phase`."""
        return 0

    def send(self, part: Part, data: bytearray) -> str:
        """Send a part; see :meth:`maskreg.checkpoint.base.CheckpointWriter.send`."""
        key, upload_id, header = self.objects[part.file]
        if not part.number:
            data = bytearray(header) + data
        return send_part(_connected(self.out), key, upload_id, part.number + 1, data)["ETag"]


@lru_cache(maxsize=1)
def _connected(out: BucketPath) -> Uploads:
    return Uploads(out)


SENT_BYTES = 128 << 20
"""Bytes of a part that a worker sends: 16 blocks of 16-bit numbers, so that one in 16 is made twice."""


class Extent(NamedTuple):
    """What of the stream of all tensors' data a file holds."""

    header_bytes: int
    data_bytes: int


@dataclass(frozen=True)
class Layout:
    """How the stream is cut into files, one after another."""

    files: tuple[Extent, ...]

    @cached_property
    def _stops(self) -> list[int]:
        return list(accumulate(file.data_bytes for file in self.files))

    @property
    def data_bytes(self) -> int:
        """Length of the stream."""
        return self._stops[-1] if self._stops else 0

    def cut(self, offset: int, size: int) -> Iterator[tuple[int, int, int]]:
        """Cut a part of the stream at the ends of files."""
        while size:
            number = bisect_right(self._stops, offset)
            if number == len(self.files):
                yield number, 0, size
                return
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
            ((number, place, _),) = self.cut(task.offset, task.nbytes)
            begin, size = task.offset - place, self.files[number].header_bytes + self.files[number].data_bytes
            length, end = part_bytes(size, SENT_BYTES), place + task.nbytes
            while gathered and end >= (stop := min((part + 1) * length, size)):
                yield Piece(tuple(gathered), Part(number, part), begin + part * length, begin + stop)
                gathered = [task] if end > stop else []
                part = 0 if stop == size else part + 1

    def phase(self, offset: int) -> int:
        """Where memory best begins; see :meth:`maskreg.checkpoint.base.CheckpointWriter.phase`."""
        number = bisect_right(self._stops, offset)
        return phase(self._place(number, offset)) if number < len(self.files) else 0

    def _place(self, number: int, offset: int) -> int:
        file = self.files[number]
        return file.header_bytes + offset - (self._stops[number] - file.data_bytes)


@dataclass(frozen=True)
class StagedWriter:
    """What a writer is in another process.

    Attributes:
        out: where the checkpoint will appear; for messages.
        paths: of the unfinished files, as both processes know them; None for one that has no data.
    """

    out: Path
    layout: Layout
    paths: tuple[Path | None, ...]

    def put_at(self, offset: int, data: Buffer | npt.NDArray[Any]) -> None:
        """Write bytes at their place; see :meth:`maskreg.checkpoint.base.CheckpointWriter.put_at`."""
        view = memoryview(cast("Buffer", data))
        if not view.nbytes:
            return
        view = view.cast("B")
        with creating(self.out):
            for number, place, size in self.layout.cut(offset, view.nbytes):
                path = self.paths[number] if number < len(self.paths) else None
                if path is None:
                    raise surplus(self.out, self.layout)
                with closing(DirectFile(path, create=False)) as file:
                    file.write_at(place, view[:size])
                view = view[size:]

    def phase(self, offset: int) -> int:
        """Where memory best begins; see :meth:`maskreg.checkpoint.base.CheckpointWriter.phase`."""
        return self.layout.phase(offset)


def surplus(out: object, layout: Layout) -> CannotCreateError:
    """More data came than a layout has room for."""
    return CannotCreateError(f"{out}: more data than the {layout.data_bytes:,} bytes that were planned")


@dataclass(frozen=True)
class SafetensorsPlan:
    """Every file of a checkpoint that is about to be written; an :class:`~maskreg.checkpoint.base.OutputPlan`.

    Attributes:
        shards: the weight files in order.
        index: the weight index; empty when there is a single weight file.
        files: small files by name: their bytes, or a path to copy from.
        single_file: the source is one file without a directory of its own.
        sources: resolved paths that the output must not replace.
    """

    shards: tuple[Shard, ...]
    index: bytes = b""
    files: Mapping[str, bytes | Location] = field(default_factory=dict)
    single_file: bool = False
    sources: tuple[Location, ...] = ()

    @property
    def tensors(self) -> Iterator[TensorInfo]:
        """All tensors, in the order in which their data must be written."""
        return (info for shard in self.shards for info in shard.tensors)

    @property
    def data_bytes(self) -> int:
        """Size of all tensors' data in bytes."""
        return sum(shard.data_bytes for shard in self.shards)

    @property
    def total_bytes(self) -> int:
        """Size of all files together in bytes."""
        headers = sum(len(shard.header) for shard in self.shards)
        return headers + self.data_bytes + len(self.index) + sum(map(_size, self.files.values()))

    @property
    def names(self) -> frozenset[str]:
        """Names of all files in a directory of this plan."""
        index = {INDEX_NAME} if self.index else set()
        return frozenset({shard.file_name for shard in self.shards} | index | self.files.keys())

    @property
    def entry(self) -> str:
        """Name of the file without which readers find no checkpoint: the index, or the only weight file."""
        return INDEX_NAME if self.index or not self.shards else self.shards[0].file_name

    def writer(self, out: Location, *, force: bool) -> SafetensorsWriter:
        """A writer of this plan."""
        return SafetensorsWriter(out, self, force=force)


_SMALL_BYTES = 1 << 20
"""Shorter pieces are written together: small tensors come by the thousand."""


class SafetensorsWriter:
    """Cuts the stream into shards; see :class:`~maskreg.checkpoint.base.CheckpointWriter`.

    Attributes:
        out: where the checkpoint appears, absolute.
        is_file: the output is a single file, because the source is one and ``out`` ends in ``.safetensors``.
        skipped_files: small files of the plan that a single file has no room for.
    """

    def __init__(self, out: Location, plan: SafetensorsPlan, *, force: bool) -> None:
        self.is_file = plan.single_file and out.suffix == ".safetensors" and len(plan.shards) == 1
        self.skipped_files = tuple(plan.files) if self.is_file else ()
        self._output = pending_output(
            out,
            is_file=self.is_file,
            weights="*.safetensors",
            index=plan.entry,
            names=frozenset() if self.is_file else plan.names,
            sources=plan.sources,
            force=force,
        )
        self.out = self._output.path
        self._plan = plan
        self._files = [_File(shard) for shard in plan.shards]
        self._layout = Layout(tuple(Extent(len(shard.header), shard.data_bytes) for shard in plan.shards))
        self._lock = threading.Lock()
        self._syncing: list[Future[None]] = []
        self._crew = Crew()
        self._syncer = ThreadPoolExecutor(1, thread_name_prefix="maskreg-sync", initializer=self._crew.enter)
        self._position = 0
        self._small = bytearray()

    @property
    def kept_files(self) -> tuple[str, ...]:
        """See :class:`~maskreg.checkpoint.base.CheckpointWriter`."""
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
        """Append the next bytes; see :meth:`~maskreg.checkpoint.base.CheckpointWriter.write`."""
        # The cast is for type checkers: before Python 3.12 they do not know that arrays are buffers.
        view = memoryview(cast("Buffer", data))
        if not view.nbytes:
            return
        view = view.cast("B")
        with self._errors():
            if view.nbytes < _SMALL_BYTES:
                self._small += view
                if len(self._small) >= _SMALL_BYTES:
                    self._write_small()
                return
            self._write_small()
            self._append(view)

    def write_at(self, offset: int, data: Buffer | npt.NDArray[Any]) -> None:
        """Write bytes at their place; see :meth:`~maskreg.checkpoint.base.CheckpointWriter.write_at`."""
        self.put_at(offset, data)
        self.wrote(offset, memoryview(cast("Buffer", data)).nbytes)

    def put_at(self, offset: int, data: Buffer | npt.NDArray[Any]) -> None:
        """Write bytes that :meth:`wrote` counts; see :meth:`~maskreg.checkpoint.base.CheckpointWriter.put_at`."""
        view = memoryview(cast("Buffer", data))
        if not view.nbytes:
            return
        view = view.cast("B")
        with self._errors():
            for number, place, size in self._layout.cut(offset, view.nbytes):
                self._handle(number).write_at(place, view[:size])
                view = view[size:]

    def wrote(self, offset: int, size: int) -> None:
        """Count what was written; see :meth:`~maskreg.checkpoint.base.CheckpointWriter.wrote`."""
        for number, _, piece in self._layout.cut(offset, size):
            if number == len(self._files):
                raise surplus(self.out, self._layout)
            file = self._files[number]
            with self._lock:
                file.missing -= piece
                if file.missing < 0:
                    raise surplus(self.out, self._layout)
                if not file.missing:
                    self._syncing.append(self._syncer.submit(file.close))

    def phase(self, offset: int) -> int:
        """Where memory best begins; see :meth:`~maskreg.checkpoint.base.CheckpointWriter.phase`."""
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
        """See :meth:`~maskreg.checkpoint.base.CheckpointWriter.pieces`."""
        return single(tasks) if is_here() or isinstance(self.out, Path) else self._layout.parts(tasks)

    def send(self, part: Part, data: bytearray) -> str:
        """Not for this process, which writes with :meth:`put_at`."""
        raise UsageError("parts are sent by other processes")

    def sent(self, part: Part, receipt: str) -> None:
        """See :meth:`~maskreg.checkpoint.base.CheckpointWriter.sent`."""
        upload = self._files[part.file].handle
        assert isinstance(upload, Upload)
        upload.sent(part.number, receipt)

    def _uploaded_elsewhere(self) -> Iterator[ObjectParts]:
        """Begin the upload of every file with data, and tell how to go on with it."""
        opened = [file for file in self._files if file.missing]
        for file in opened:
            size = len(file.shard.header) + file.data_bytes
            file.handle = file.handle or self._output.create(file.shard.file_name, size)
        uploads = {id(file): file.handle for file in opened if isinstance(file.handle, Upload)}
        # Large models have hundreds of files, and the service takes its time for each.
        each(uploads.values(), Upload.begin, jobs=COMPLETING)
        for file in self._files:
            upload = uploads.get(id(file))
            yield (
                ObjectParts("", "", b"")
                if upload is None
                else ObjectParts(upload.path.key, upload.upload_id, file.shard.header)
            )

    def _errors(self) -> AbstractContextManager[None]:
        return creating(self.out) if isinstance(self.out, Path) else nullcontext()

    def _handle(self, number: int) -> OutputFile:
        """The open file of that number, made with its header when it is first needed."""
        if number == len(self._files) or not self._files[number].missing:
            raise surplus(self.out, self._layout)
        with self._lock:
            file = self._files[number]
            if file.handle is None:
                self._open(file)
        assert file.handle is not None
        return file.handle

    def _open(self, file: _File) -> None:
        header = file.shard.header
        file.handle = handle = self._output.create(file.shard.file_name, len(header) + file.data_bytes)
        file.path = handle.path if isinstance(handle, DirectFile) else None
        handle.write_at(0, memoryview(header))

    def _write_small(self) -> None:
        small, self._small = self._small, bytearray()
        self._append(memoryview(small))

    def _append(self, view: memoryview) -> None:
        self.write_at(self._position, view)
        self._position += len(view)

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        error = exc[0] if exc else None
        assert error is None or isinstance(error, BaseException)
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
        self._write_small()
        missing = sum(file.missing for file in self._files)
        if missing:
            raise CannotCreateError(f"{self.out}: {missing:,} of {self._plan.data_bytes:,} bytes were never written")
        for file in self._files:
            if not file.data_bytes:
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
    """A weight file that is being written.

    Attributes:
        missing: bytes of it that were not written yet.
        handle: None before it is opened and after it is closed.
        path: of a file on a disk, since it was opened.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.data_bytes = self.missing = shard.data_bytes
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


def _size(content: bytes | Location) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size
