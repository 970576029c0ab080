"""Bodies of requests and answers: what is sent here is hashed and counted on a temporary file before it is used.

Large bodies are never in the memory of the process as a whole: they are written piece by piece to a file without a
name, which is gone when the process dies, and mapped.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import mmap
import re
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from maskreg.digest import Digest
from maskreg.errors import CorruptError, LimitError, UsageError
from maskreg.store import Store

_PIECE = 1 << 20
_IN_MEMORY = 1 << 20
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")  # no object has a size of more digits
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")


@dataclass(frozen=True)
class Stated:
    """What the headers of an upload say about its body."""

    size: int
    sha256: Digest

    @classmethod
    def of(cls, request: Request, max_bytes: int) -> Stated:
        """Read the headers."""
        length = request.headers.get("content-length", "")
        if not re.fullmatch("[0-9]{1,18}", length):
            raise UsageError("an upload needs its size in Content-Length")
        if int(length) > max_bytes:
            raise LimitError(f"{length} bytes; the limit is {max_bytes}")
        match = _DIGEST.fullmatch(request.headers.get("repr-digest", ""))
        if match is None:
            raise UsageError("an upload needs its digest in Repr-Digest: sha-256=:BASE64:")
        try:
            raw = base64.b64decode(match[1], validate=True)
        except binascii.Error as error:
            raise UsageError("the digest in Repr-Digest is not base64") from error
        return cls(int(length), Digest(f"sha256:{raw.hex()}"))


@asynccontextmanager
async def received(request: Request, stated: Stated) -> AsyncIterator[bytes]:
    """The body of an upload, once all of it is there and is what the headers say."""
    computed = hashlib.sha256()
    size = 0
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as file:

        def take(piece: bytes) -> None:
            computed.update(piece)
            file.write(piece)

        waiting = bytearray()
        async for piece in request.stream():
            size += len(piece)
            if size > stated.size:
                break
            waiting += piece
            if len(waiting) >= _PIECE:
                await run_in_threadpool(take, bytes(waiting))
                waiting.clear()
        await run_in_threadpool(take, bytes(waiting))
        if size != stated.size or f"sha256:{computed.hexdigest()}" != stated.sha256:
            raise CorruptError("the body", "its size or sha256 is not what the headers say")
        if size <= _IN_MEMORY:
            file.seek(0)
            yield file.read()
            return
        file.rollover()
        file.flush()
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped:
            yield mapped  # type: ignore[misc]  # a buffer, which is what stores take


def chosen(header: str, size: int) -> tuple[int, int] | None:
    """The first and last byte of an object that ``Range`` means; None for all of it."""
    match = _RANGE.fullmatch(header.strip())
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        first, last = max(0, size - int(match[2])), size - 1
    else:
        first, last = int(match[1]), min(int(match[2] or size - 1), size - 1)
    if first >= size or first > last:
        raise LimitError(f"the range {header} is not within {size} bytes")
    return first, last


def pieces(store: Store, key: str, first: int, size: int, *, max_bytes: int) -> Iterator[bytes]:
    """Bytes of an object, from ``first`` on; from a file one piece at a time."""
    if (files := store.files) is None:
        yield store.get(key, max_bytes=max_bytes)[first : first + size]
        return
    with files.opened(key, max_bytes) as (file, _):
        file.seek(first)
        while size > 0 and (piece := file.read(min(size, _PIECE))):
            size -= len(piece)
            yield piece
