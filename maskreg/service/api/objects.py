"""``/objects``: the objects of the served store, for clients that push and pull (``maskreg.service.gateway``).

Large bodies are never in the memory of the process as a whole: they are written piece by piece to a file without a
name, which is gone when the process dies, and mapped. They are hashed and counted before they are used.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import mmap
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from email.utils import format_datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from maskreg.digest import Digest
from maskreg.errors import CorruptError, LimitError, NotFoundError, UsageError
from maskreg.service.access import Entry, Kept, Needs, SomeReader, Where
from maskreg.service.api import models
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.gateway.objects import Objects, no_links
from maskreg.service.gateway.policy import Action, Key, Kind
from maskreg.service.middleware import DocumentRoute
from maskreg.service.problems import problem
from maskreg.store import Store
from maskreg.store.base import ObjectInfo
from maskreg.store.http import DIRECT

router = APIRouter(tags=["objects"], route_class=DocumentRoute)


def _written(request: Request) -> Entry | None:
    # Objects stay unseen until an entry of a ref log names them: what it does is recorded where it is accepted.
    first, _, rest = request.path_params["key"].partition("/")
    project = rest.partition("/")[0]
    return Entry("write key", project, project) if first == "keys" else None


WRITER = Annotated[Principal, Depends(Needs(Role.WRITER, Where.ANY, audited=_written))]
KEEPER = Annotated[Principal, Depends(Needs(Role.WRITER, Where.ANY, audited="delete object"))]
LINKED = Annotated[Principal, Depends(Needs(Role.WRITER, Where.ANY, audited=Kept.NOT))]

_LINES = 256
_PIECE = 1 << 20
_IN_MEMORY = 1 << 20
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")  # no object has a size of more digits
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")
_FOREVER = "private, max-age=31536000, immutable"


async def objects_of(request: Request) -> Objects:
    """The objects of the server, with what is remembered of them; for a route."""
    objects: Objects = request.app.state.objects
    return objects


ServedObjects = Annotated[Objects, Depends(objects_of)]


@router.get("/clock")
def clock(objects: ServedObjects, principal: SomeReader) -> dict[str, str]:
    """The time by the clock that stamps objects."""
    return {"now": objects.store.clock().isoformat()}


@router.get("/objects", response_class=StreamingResponse)
def listing(
    objects: ServedObjects,
    principal: SomeReader,
    prefix: Annotated[str, Query(max_length=1024)] = "",
    after: Annotated[str, Query(max_length=1024)] = "",
    limit: Annotated[int | None, Query(ge=1)] = None,
    links: Annotated[bool, Query()] = False,
) -> StreamingResponse:
    """Objects below a prefix, in key order, one JSON document a line; the last one says how many there are.

    An answer without that last line broke off. With ``limit`` at most so many; go on with the last key as ``after``.
    With ``links``, rows of an artifact's objects can say where to read them without a token, for some minutes.
    """
    infos = objects.list(prefix, principal)
    link = objects.read_links(prefix, principal) if links else no_links
    rows = _rows(infos, after, limit, link)
    return StreamingResponse(rows, media_type="application/x-ndjson", headers={"Cache-Control": "no-store"})


@router.get("/objects/{key:path}", response_class=Response)
def read(key: str, request: Request, objects: ServedObjects, principal: SomeReader) -> Response:
    """The bytes of an object, or a range of them."""
    known = objects.permit(key, Action.READ, principal)
    data: bytes | None = None
    if known.kind is Kind.OBJECT:
        entry = objects.incoming.expected(known)
        digest, size = Digest(entry.sha256), entry.size
    else:
        data = objects.get(known)
        digest, size = Digest.of(data), len(data)
    headers = _facts(known, digest)
    tags = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if headers["ETag"] in tags or "*" in tags:
        return Response(status_code=304, headers=headers)
    same = request.headers.get("if-range", "").strip() in ("", headers["ETag"])
    try:
        span = _chosen(request.headers.get("range", ""), size) if same else None
    except LimitError as error:
        return problem(416, error.message, code=error.code, headers={"Content-Range": f"bytes */{size}"})
    if data is None and request.headers.get(DIRECT) != "never" and (link := objects.read_link(known)):
        # What is there is not looked up: where the link leads nowhere, the client asks again without one.
        return Response(status_code=307, headers={"Location": link, "Cache-Control": "no-store"})
    first, last = span or (0, size - 1)
    if span:
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    media, status = "application/octet-stream", 206 if span else 200
    if data is not None:
        return Response(data[first : last + 1], status, headers, media_type=media)
    if objects.store.head(known.key) is None:
        raise NotFoundError(f"there is no {known.key}")
    length = last - first + 1
    body = pieces_of(objects.store, known.key, first, length, max_bytes=size)
    return StreamingResponse(body, status, {**headers, "Content-Length": str(length)}, media_type=media)


@router.head("/objects/{key:path}", response_class=Response)
def head(key: str, objects: ServedObjects, principal: SomeReader) -> Response:
    """Size and time of an object."""
    known, info = objects.head(key, principal)
    stamp = {
        "X-Maskreg-Size": str(info.size),
        "X-Maskreg-Modified": info.modified.isoformat(),
        "Last-Modified": format_datetime(info.modified, usegmt=True),
    }
    return Response(headers={**_facts(known, objects.sha256(known)), **stamp})


_BODY = {
    "parameters": [{"name": "Repr-Digest", "in": "header", "required": True, "schema": {"type": "string"}}],
    "requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
}


@router.put("/objects/{key:path}", status_code=201, response_class=Response, openapi_extra=_BODY)
async def write(key: str, request: Request, objects: ServedObjects, principal: WRITER) -> Response:
    """Write an object; with ``If-None-Match: *`` only if there is none, else 412.

    ``Content-Length`` and ``Repr-Digest`` state what is sent. Nothing is visible before the body was compared with
    them, and with what the key can hold.
    """
    known = await run_in_threadpool(objects.permit, key, Action.SEND, principal)
    limit = known.max_bytes
    if known.kind is Kind.OBJECT:
        limit = (await run_in_threadpool(objects.incoming.expected, known)).size
    create = request.headers.get("if-none-match", "").strip() == "*"
    size, digest = stated_of(request, limit)
    async with _received(request, size, digest) as data:
        written = await run_in_threadpool(objects.incoming.accept, known, data, digest, principal, create=create)
    # Of what must not be replaced, a second one is refused whether the sender asked for that or not.
    refused = not written and (create or known.kind is Kind.ENTRY)
    return Response(status_code=412 if refused else 201)


@router.delete("/objects/{key:path}", status_code=204, response_class=Response)
def delete(key: str, objects: ServedObjects, principal: KEEPER) -> Response:
    """Delete an object; one that is missing is not an error."""
    objects.delete(objects.permit(key, Action.DELETE, principal), principal)
    return Response(status_code=204)


class UploadRequest(BaseModel):
    """An object of an artifact that a client wants to upload."""

    key: str = Field(max_length=1024)
    size: int = Field(ge=0)
    sha256: models.DigestText


class Upload(BaseModel):
    """Where to upload it; without a URL, PUT it to this server."""

    number: str = Field(description="For the request that ends the upload.")
    url: str
    headers: dict[str, str] = Field(description="Signed: the upload has to carry them.")


class Uploaded(BaseModel):
    """An upload that has ended."""

    key: str = Field(max_length=1024)
    number: str = Field(pattern="^[0-9a-f]{32}$")


@router.post("/uploads")
def upload(body: UploadRequest, objects: ServedObjects, principal: LINKED) -> Upload:
    """Where to upload an object, so that its bytes need not pass through this server; a link is good for minutes.

    The object appears when ``/uploads/finished`` was asked and the bytes were checked.
    """
    key = objects.permit(body.key, Action.SEND, principal)
    upload_link = objects.incoming.upload_link(key, (body.size, Digest(body.sha256)), principal)
    if upload_link is None:
        return Upload(number="", url="", headers={})
    number, link = upload_link
    return Upload(number=number, url=link.url, headers=link.headers)


@router.post("/uploads/finished", status_code=204, response_class=Response)
def finished(uploaded: Uploaded, objects: ServedObjects, principal: LINKED) -> Response:
    """Check what was uploaded, and let it appear under its key."""
    objects.incoming.finish_upload(objects.permit(uploaded.key, Action.SEND, principal), uploaded.number, principal)
    return Response(status_code=204)


def _rows(infos: Iterator[ObjectInfo], after: str, limit: int | None, link: Callable[[str], str]) -> Iterator[bytes]:
    lines: list[bytes] = []
    count = 0
    for info in infos:
        if info.key <= after:
            continue
        if limit is not None and count == limit:
            break
        count += 1
        row = {"key": info.key, "size": info.size, "modified": info.modified.isoformat()}
        if url := link(info.key):
            row["link"] = url
        lines.append(json.dumps(row).encode())
        if len(lines) == _LINES:
            yield b"\n".join([*lines, b""])
            lines.clear()
    lines.append(json.dumps({"end": True, "count": count}).encode())
    yield b"\n".join([*lines, b""])


def _facts(key: Key, digest: Digest | None) -> dict[str, str]:
    headers = {"Cache-Control": _FOREVER if key.immutable else "no-cache", "Accept-Ranges": "bytes"}
    return headers | ({"ETag": f'"{digest}"'} if digest else {})


def stated_of(request: Request, max_bytes: int) -> tuple[int, Digest]:
    """Size and digest of an upload, from its headers."""
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
    return int(length), Digest(f"sha256:{raw.hex()}")


@asynccontextmanager
async def _received(request: Request, stated: int, digest: Digest) -> AsyncIterator[bytes]:
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
            if size > stated:
                break
            waiting += piece
            if len(waiting) >= _PIECE:
                await run_in_threadpool(take, bytes(waiting))
                waiting.clear()
        await run_in_threadpool(take, bytes(waiting))
        if size != stated or f"sha256:{computed.hexdigest()}" != digest:
            raise CorruptError("the body", "its size or sha256 is not what the headers say")
        if size <= _IN_MEMORY:
            file.seek(0)
            yield file.read()
            return
        file.rollover()
        file.flush()
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped:
            yield mapped  # type: ignore[misc]  # a buffer, which is what stores take


def _chosen(header: str, size: int) -> tuple[int, int] | None:
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


def pieces_of(store: Store, key: str, first: int, size: int, *, max_bytes: int) -> Iterator[bytes]:
    """Bytes of an object, from ``first`` on; from a file one piece at a time."""
    if (files := store.files) is None:
        yield store.get(key, max_bytes=max_bytes)[first : first + size]
        return
    with files.opened(key, max_bytes) as (file, _):
        file.seek(first)
        while size > 0 and (piece := file.read(min(size, _PIECE))):
            size -= len(piece)
            yield piece
