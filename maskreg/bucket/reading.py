"""Reading an object part by part, with parts that are needed soon on their way already.

A caller that hands out work says which bytes it will need (``expect``), before a thread reads them leaf by leaf::

    expect(0, 8M)     expect(8M, 8M)     ...        two requests are on their way
    fill(leaf 0)  fill(leaf 1)  ...                 from the answer to the first; the last leaf drops it

Small tensors lie side by side in a file. So what is expected waits for what is expected next: neighbors become one
request, which leaves when it is large enough, when something else is expected, or when a part of it is read::

    expect(0, 8K)  expect(8K, 8K)  expect(16K, 8M)      one request for all three
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from maskreg.bucket.path import BucketPath
from maskreg.parallel import result_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

TOGETHER_BYTES = 1 << 20
"""A request for less waits for its neighbors."""

GAP_BYTES = 1 << 14
"""Neighbors can lie so far apart; what lies between is fetched too."""

HELD_BYTES = 256 << 20
"""Answers of one file that can wait to be read; beyond that the oldest is dropped."""


class _Request:
    """A request for bytes ``[start, stop)`` of the object: not sent yet, on its way, or answered.

    Attributes:
        unread: bytes that are still expected to be read from it.
    """

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.unread = 0
        self.answer: Future[Buffer] | None = None

    @property
    def size(self) -> int:
        return self.stop - self.start


class BucketFile:
    """An object that is open for reading; see :class:`maskreg.checkpoint.files.OpenFile`."""

    def __init__(self, path: BucketPath) -> None:
        """Nothing is read yet."""
        self.path = path
        self.size, self._etag = path.version()
        self._lock = threading.Lock()
        self._requests: list[_Request] = []

    def fill(self, into: memoryview, offset: int) -> bool:
        """Fill ``into`` from ``offset`` on; False when the object ends before."""
        if not len(into):
            return offset <= self.size
        if (data := self.at_hand(offset, len(into))) is None:
            return False
        into[:] = data
        return True

    def at_hand(self, offset: int, size: int) -> memoryview | None:
        """``size`` bytes, at least one, as the bucket's answer has them in memory; None when the object ends before."""
        stop = offset + size
        if stop > self.size:
            return None
        with self._lock:
            request = self._holding(offset, stop)
            answer = self._sent(request) if request is not None else None
        data = memoryview(self._read(offset, stop) if answer is None else result_of(answer))
        first = offset if request is None else request.start
        if len(data) < stop - first:
            return None
        if request is not None:
            with self._lock:
                request.unread -= size
                if request.unread <= 0 and request in self._requests:
                    self._requests.remove(request)
        return data[offset - first : stop - first]

    def expect(self, offset: int, size: int) -> int:
        """Fetch these bytes meanwhile, unless they are on their way; how many of them the object has."""
        stop = min(offset + size, self.size)
        if stop <= offset:
            return 0
        with self._lock:
            request = self._holding(offset, stop)
            if request is None:
                request = self._gathered(offset, stop)
            request.unread += stop - offset
            while sum(held.size for held in self._requests) > HELD_BYTES:
                self._requests.pop(0)
        return stop - offset

    def close(self) -> None:
        """Forget what was fetched."""
        with self._lock:
            requests, self._requests = self._requests, []
        for request in requests:
            if request.answer is not None:
                request.answer.cancel()

    def _holding(self, start: int, stop: int) -> _Request | None:
        return next((held for held in self._requests if held.start <= start and stop <= held.stop), None)

    def _gathered(self, start: int, stop: int) -> _Request:
        """The last request, made longer, or a new one."""
        last = self._requests[-1] if self._requests else None
        if last is not None and last.answer is None and 0 <= start - last.stop <= GAP_BYTES:
            request = last
            request.stop = stop
        else:
            if last is not None:
                self._sent(last)
            request = _Request(start, stop)
            self._requests.append(request)
        if request.size >= TOGETHER_BYTES:
            self._sent(request)
        return request

    def _sent(self, request: _Request) -> Future[Buffer]:
        if request.answer is None:
            request.answer = self.path.bucket.pool.submit(self._read, request.start, request.stop)
        return request.answer

    def _read(self, start: int, stop: int) -> Buffer:
        return self.path.bucket.read(self.path.key, start, stop, self._etag)
