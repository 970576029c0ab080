"""Writing a checkpoint that appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from maskreg.checkpoint import output
from maskreg.checkpoint.base import INDEX_NAME, Shard
from maskreg.checkpoint.safetensors.plan import OutputPlan
from maskreg.disk import creating, require_space, sync_folder
from maskreg.errors import CannotCreateError

if TYPE_CHECKING:
    from typing import Any

    import numpy.typing as npt
    from typing_extensions import Buffer


class CheckpointWriter:
    """Takes the data of all tensors of a plan, one after another, and makes a checkpoint of it.

    A context manager: leaving it without an exception checks that every planned byte was written and lets
    the output appear; an exception leaves nothing behind. Not for several threads.

    Attributes:
        out: where the checkpoint appears, absolute.
        is_file: the output is a single file, because the source is one and ``out`` ends in ``.safetensors``.
        skipped_files: small files of the plan that a single file has no place for.
    """

    def __init__(self, out: Path, plan: OutputPlan, *, force: bool) -> None:
        # Not resolve(): a link at the output's own place is replaced, and never written through.
        absolute = out.expanduser().absolute()
        self.out = absolute.parent.resolve() / absolute.name
        self.is_file = plan.single_file and out.suffix == ".safetensors" and len(plan.shards) == 1
        self.skipped_files = tuple(plan.files) if self.is_file else ()
        self._plan, self._force = plan, force
        self._coming = list(reversed(plan.shards))
        self._work = Path()
        self._handle = -1
        self._left = 0

    def __enter__(self) -> Self:
        with creating(self.out):
            self._check_out()
            self.out.parent.mkdir(parents=True, exist_ok=True)
            output.clean_stale(self.out.parent)
            # Again: an output that a crash had left moved aside may just have come back.
            self._check_out()
            require_space(self.out.parent, self._plan.total_bytes, what="the checkpoint")
            self._work = output.work_path(self.out)
            try:
                self._begin()
            except BaseException:
                self._discard()
                raise
        return self

    def write(self, data: Buffer | npt.NDArray[Any]) -> None:
        """Append the next bytes, of any length: they may end within a tensor or go on into the next.

        Args:
            data: C-contiguous; an array's elements are written as they lie in memory.

        Raises:
            NoSpaceError: the disk became full.
            CannotCreateError: it cannot be written, or the plan has no room for so many bytes.
        """
        # The cast is for type checkers: before Python 3.12 they do not know that arrays are buffers.
        view = memoryview(cast("Buffer", data))
        if not view.nbytes:
            return
        view = view.cast("B")
        with creating(self.out):
            while view:
                if not self._left:
                    self._next_shard()
                count = os.write(self._handle, view[: self._left])
                view = view[count:]
                self._left -= count

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        try:
            if kind is None:
                with creating(self.out):
                    self._finish()
        finally:
            # After a commit there is nothing left under the name of the work.
            self._discard()

    def _check_out(self) -> None:
        output.check_out(self.out, is_file=self.is_file, source=self._plan.source, force=self._force)

    def _begin(self) -> None:
        if self.is_file:
            return
        self._work.mkdir()
        files = dict(self._plan.files)
        if self._plan.index:
            files[INDEX_NAME] = self._plan.index
        for name, content in files.items():
            handle = _create(self._work / name)
            try:
                _write_all(handle, content if isinstance(content, bytes) else content.read_bytes())
                os.fsync(handle)
            finally:
                os.close(handle)

    def _next_shard(self) -> None:
        self._end_shard()
        if not self._coming:
            raise CannotCreateError(f"{self.out}: more data than the {self._plan_size()} that were planned")
        shard: Shard = self._coming.pop()
        self._handle = _create(self._work if self.is_file else self._work / shard.file_name)
        _write_all(self._handle, shard.header)
        self._left = shard.data_bytes

    def _end_shard(self) -> None:
        if self._handle < 0:
            return
        handle, self._handle = self._handle, -1
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _finish(self) -> None:
        # What is still to come can only be shards without data.
        while self._coming and not self._left:
            self._next_shard()
        if self._left:
            missing = self._left + sum(shard.data_bytes for shard in self._coming)
            raise CannotCreateError(f"{self.out}: {missing:,} of {self._plan_size()} were never written")
        self._end_shard()
        if not self.is_file:
            sync_folder(self._work)
        self._check_out()
        output.commit(self._work, self.out)

    def _plan_size(self) -> str:
        return f"{sum(shard.data_bytes for shard in self._plan.shards):,} bytes"

    def _discard(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
        # Must not hide the error that led here; what stays is removed by the next run.
        with contextlib.suppress(OSError):
            output.remove(self._work)
        output.forget(self._work)


def write_checkpoint(out: Path, plan: OutputPlan, *, force: bool = False) -> CheckpointWriter:
    """A writer for ``plan`` at ``out``; see :class:`CheckpointWriter`.

    Args:
        out: a path that does not exist yet; missing parents are made.
        plan: every file that will be there.
        force: replace an earlier output.

    Raises (on entering, and some again on leaving):
        OutputExistsError: ``out`` exists and ``force`` is False.
        NoSpaceError: the output does not fit on the disk.
        CannotCreateError: ``out`` cannot be written, or must not be replaced.
    """
    return CheckpointWriter(out, plan, force=force)


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
