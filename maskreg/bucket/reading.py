"""Reading an object part by part, with parts that are needed soon on their way already.

Whoever hands out work says which bytes it will need (``expect``), some tasks before a thread reads them leaf by leaf::

    expect(0, 8M)     expect(8M, 8M)     ...        two requests are on their way
    fill(leaf 0)  fill(leaf 1)  ...                 from the answer to the first; the last leaf drops it

Small tensors lie side by side in a file, so what is expected of one is fetched with what follows, up to 256 KiB; a part
of it that is expected afterwards needs no request.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future
from typing import TYPE_CHECKING

from maskreg.bucket.path import BucketPath

if TYPE_CHECKING:
    from typing_extensions import Buffer

TOGETHER_BYTES = 1 << 18
"""A shorter part is fetched with what follows it, up to so much."""

HELD_BYTES = 128 << 20
"""Answers of one file that may wait to be read; beyond that the oldest is dropped."""


class _Answer:
    """Bytes ``[start, stop)`` of the object, on their way or here."""

    def __init__(self, start: int, stop: int, data: Future[Buffer]) -> None:
        self.start, self.stop, self.data = start, stop, data
        self.unread = stop - start

    def holds(self, start: int, stop: int) -> bool:
        return self.start <= start and stop <= self.stop


class BucketFile:
    """An object that is open for reading; see :class:`maskreg.checkpoint.files.OpenFile`."""

    def __init__(self, path: BucketPath) -> None:
        """Nothing is read yet.

        Args:
            path: of the object.

        Raises:
            NotFoundError: there is none.
        """
        self.path = path
        self.size, self._etag = path.version()
        self._lock = threading.Lock()
        self._answers: OrderedDict[int, _Answer] = OrderedDict()

    def fill(self, into: memoryview, offset: int) -> bool:
        """Fill ``into`` from ``offset`` on; False when the object ends before."""
        stop = offset + len(into)
        if stop > self.size:
            return False
        if not len(into):
            return True
        with self._lock:
            answer = self._holding(offset, stop)
        data = self._read(offset, stop) if answer is None else answer.data.result()
        first = offset if answer is None else answer.start
        if len(memoryview(data)) < stop - first:
            return False
        into[:] = memoryview(data)[offset - first : stop - first]
        if answer is not None:
            self._took(answer, len(into))
        return True

    def expect(self, offset: int, size: int) -> None:
        """Fetch these bytes meanwhile, unless they are on their way."""
        stop = min(offset + size, self.size)
        with self._lock:
            if stop <= offset or self._holding(offset, stop) is not None:
                return
            stop = min(max(stop, offset + TOGETHER_BYTES), self.size)
            self._answers[offset] = _Answer(offset, stop, self.path.bucket.pool.submit(self._read, offset, stop))
            while sum(answer.stop - answer.start for answer in self._answers.values()) > HELD_BYTES:
                self._answers.popitem(last=False)

    def close(self) -> None:
        """Forget what was fetched."""
        with self._lock:
            answers, self._answers = self._answers, OrderedDict()
        for answer in answers.values():
            answer.data.cancel()

    def _holding(self, start: int, stop: int) -> _Answer | None:
        return next((answer for answer in self._answers.values() if answer.holds(start, stop)), None)

    def _took(self, answer: _Answer, size: int) -> None:
        with self._lock:
            answer.unread -= size
            if answer.unread <= 0:
                self._answers.pop(answer.start, None)

    def _read(self, start: int, stop: int) -> Buffer:
        return self.path.bucket.read(self.path.key, start, stop, self._etag)
