"""Writing from the workers of a cluster into files that another process makes, on a disk that both see or in a bucket.

On a disk, the process that makes a checkpoint creates its files, counts what was written, syncs and renames them.
Workers only put bytes at their places: each opens a file for one piece, and closes it again. That costs microseconds
beside a piece of mebibytes, and a network disk has the piece when the file is closed.

In a bucket, it begins the uploads, notes what was sent, and completes them. Workers only send parts, with credentials
of their own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from maskreg.bucket import BucketPath
from maskreg.bucket.uploads import Uploads, part_bytes, send_part
from maskreg.checkpoint.base import Part, Piece, TaskT
from maskreg.disk import DirectFile, creating, phase
from maskreg.errors import CannotCreateError

if TYPE_CHECKING:
    from typing import Any

    import numpy.typing as npt
    from typing_extensions import Buffer


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
    """What of the stream of all tensors' data a file holds.

    Attributes:
        header_bytes: where its data begins.
        data_bytes: size of its data.
    """

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
        layout: of the stream.
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
