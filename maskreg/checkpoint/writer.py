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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from maskreg.checkpoint.layouts import INDEX_NAME
from maskreg.checkpoint.output import PendingOutput
from maskreg.checkpoint.plan import OutputPlan
from maskreg.checkpoint.safetensors import Shard
from maskreg.disk import DirectFile, creating, phase
from maskreg.errors import CannotCreateError
from maskreg.parallel import Crew, result_of

if TYPE_CHECKING:
    from typing import Any

    import numpy.typing as npt
    from typing_extensions import Buffer


class CheckpointWriter:
    """Takes the data of a plan's tensors as one stream, and makes a checkpoint of it.

    A context manager: leaving it without an exception checks that every planned byte was written and lets the
    output appear; an exception leaves nothing behind. Not for several threads, but for :meth:`write_at`.

    Attributes:
        out: where the checkpoint appears, absolute.
        is_file: the output is a single file, because the source is one and ``out`` ends in ``.safetensors``.
        skipped_files: small files of the plan that a single file has no room for.
    """

    def __init__(self, out: Path, plan: OutputPlan, *, force: bool) -> None:
        self.is_file = plan.single_file and out.suffix == ".safetensors" and len(plan.shards) == 1
        self.skipped_files = tuple(plan.files) if self.is_file else ()
        names = frozenset() if self.is_file else plan.names
        self._output = PendingOutput(out, self.is_file, "*.safetensors", names, plan.sources, force)
        self.out = self._output.path
        self._plan = plan
        self._files = [_File(shard) for shard in plan.shards]
        self._stops = list(accumulate(shard.data_bytes for shard in plan.shards))
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
        with creating(self.out):
            try:
                self._output.begin(self._plan.total_bytes)
                self._write_small_files()
            except BaseException as error:
                self._discard(error)
                raise
        return self

    def write(self, data: Buffer | npt.NDArray[Any]) -> None:
        """Append the next bytes, C-contiguous and of any length: they can end within a tensor or go on into the next.

        An array's elements are written as they lie in memory.
        """
        self.write_at(self._position, data)
        self._position += memoryview(cast("Buffer", data)).nbytes

    def write_at(self, offset: int, data: Buffer | npt.NDArray[Any]) -> None:
        """Write bytes at their place in the stream, in any order, each once; safe to call from several threads."""
        # The cast is for type checkers: before Python 3.12 they do not know that arrays are buffers.
        view = memoryview(cast("Buffer", data))
        rest = view.cast("B") if view.nbytes else memoryview(b"")
        with creating(self.out):
            while rest:
                number = bisect_right(self._stops, offset)
                if number == len(self._files) or not self._files[number].missing:
                    raise CannotCreateError(
                        f"{self.out}: more data than the {self._plan.data_bytes:,} bytes that were planned"
                    )
                piece = rest[: self._stops[number] - offset]
                file = self._files[number]
                with self._lock:
                    handle = file.handle or self._open(file)
                handle.write_at(self._place(number, offset), piece)
                with self._lock:
                    file.missing -= len(piece)
                    if not file.missing:
                        self._syncing.append(self._syncer.submit(file.close))
                offset, rest = offset + len(piece), rest[len(piece) :]

    def phase(self, offset: int) -> int:
        """How far into a page of memory data for this place best begins, in bytes; then it need not be copied."""
        number = bisect_right(self._stops, offset)
        return phase(self._place(number, offset)) if number < len(self._files) else 0

    def _place(self, number: int, offset: int) -> int:
        """Where in its file a byte of the stream lies."""
        shard = self._files[number].shard
        return len(shard.header) + offset - (self._stops[number] - shard.data_bytes)

    def _open(self, file: _File) -> DirectFile:
        file.handle = self._output.create(file.shard.file_name)
        file.handle.write_at(0, memoryview(file.shard.header))
        return file.handle

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._discard(error)
            return
        try:
            with creating(self.out):
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
            with closing(self._output.create(name)) as file:
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
        self._output.discard()


class _File:
    """A weight file that is being written, and the bytes of its data that were not written yet.

    ``handle``: None before it is opened and after it is closed.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard, self.missing = shard, shard.data_bytes
        self.handle: DirectFile | None = None

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
