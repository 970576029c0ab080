"""``/objects``: the objects of the served store, for clients that push and pull (``maskreg.service.gateway``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from email.utils import format_datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from maskreg.digest import Digest
from maskreg.errors import LimitError, NotFoundError
from maskreg.service.access import Entry, Kept, Needs, Where
from maskreg.service.api import models
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.context import Served
from maskreg.service.gateway.bodies import Stated, chosen, pieces, received
from maskreg.service.gateway.objects import Objects, no_links
from maskreg.service.gateway.policy import Action, Key, Kind
from maskreg.service.middleware import DocumentRoute
from maskreg.service.problems import problem
from maskreg.store.base import ObjectInfo
from maskreg.store.http import DIRECT

router = APIRouter(tags=["objects"], route_class=DocumentRoute)

READER = Annotated[Principal, Depends(Needs(Role.READER, Where.ANY))]


def _written(request: Request) -> Entry | None:
    # Objects stay unseen until an entry of a ref log names them; such entries and public keys are recorded.
    match request.path_params["key"].split("/"):
        case ["refs", project, name, tag, _]:
            return Entry("write tag", project, f"{project}/{name}:{tag}")
        case ["keys", project, *_]:
            return Entry("write key", project, project)
    return None


WRITER = Annotated[Principal, Depends(Needs(Role.WRITER, Where.ANY, audited=_written))]
KEEPER = Annotated[Principal, Depends(Needs(Role.WRITER, Where.ANY, audited="delete object"))]
LINKED = Annotated[Principal, Depends(Needs(Role.WRITER, Where.ANY, audited=Kept.NOT))]

_LINES = 256
_FOREVER = "private, max-age=31536000, immutable"


async def objects_of(request: Request, service: Served) -> Objects:
    """The objects of the server, with what is remembered of them; for a route."""
    state = request.app.state
    if not hasattr(state, "objects"):
        state.objects = Objects(service.registry, service.accounts)
    objects: Objects = state.objects
    return objects


Held = Annotated[Objects, Depends(objects_of)]


@router.get("/clock")
def clock(objects: Held, principal: READER) -> dict[str, str]:
    """The time by the clock that stamps objects."""
    return {"now": objects.store.clock().isoformat()}


@router.get("/objects", response_class=StreamingResponse)
def listing(
    objects: Held,
    principal: READER,
    prefix: Annotated[str, Query(max_length=1024)] = "",
    after: Annotated[str, Query(max_length=1024)] = "",
    limit: Annotated[int | None, Query(ge=1)] = None,
    links: Annotated[bool, Query()] = False,
) -> StreamingResponse:
    """Objects below a prefix, in key order, one JSON document a line; the last one says how many there are.

    An answer without that last line broke off. With ``limit`` at most so many; go on with the last key as ``after``.
    With ``links``, rows of an artifact's objects may say where to read them without a token, for some minutes.
    """
    infos = objects.list(prefix, principal)
    link = objects.read_links(prefix, principal) if links else no_links
    rows = _rows(infos, after, limit, link)
    return StreamingResponse(rows, media_type="application/x-ndjson", headers={"Cache-Control": "no-store"})


@router.get("/objects/{key:path}", response_class=Response)
def read(key: str, request: Request, objects: Held, principal: READER) -> Response:
    """The bytes of an object, or a range of them."""
    known = objects.permit(key, Action.READ, principal)
    if known.kind is not Kind.OBJECT:
        return _small(request, known, objects.get(known))
    return _large(request, objects, known)


@router.head("/objects/{key:path}", response_class=Response)
def head(key: str, objects: Held, principal: READER) -> Response:
    """Size and time of an object."""
    known, info = objects.head(key, principal)
    return Response(headers={**_facts(known, objects.sha256(known)), **_stamp(info)})


@router.put("/objects/{key:path}", status_code=201, response_class=Response)
async def write(key: str, request: Request, objects: Held, principal: WRITER) -> Response:
    """Write an object; with ``If-None-Match: *`` only if there is none, else 412.

    ``Content-Length`` and ``Repr-Digest`` state what is sent. Nothing is visible before the body was compared with
    them, and with what the key may hold.
    """
    known = await run_in_threadpool(objects.permit, key, Action.SEND, principal)
    limit = known.max_bytes
    if known.kind is Kind.OBJECT:
        limit = (await run_in_threadpool(objects.incoming.expected, known)).size
    create = request.headers.get("if-none-match", "").strip() == "*"
    stated = Stated.of(request, limit)
    async with received(request, stated) as data:
        written = await run_in_threadpool(objects.incoming.accept, known, data, stated.sha256, principal, create=create)
    # Of what may not be replaced, a second one is refused whether the sender asked for that or not.
    refused = not written and (create or known.kind is Kind.ENTRY)
    return Response(status_code=412 if refused else 201)


@router.delete("/objects/{key:path}", status_code=204, response_class=Response)
def delete(key: str, objects: Held, principal: KEEPER) -> Response:
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
def upload(body: UploadRequest, objects: Held, principal: LINKED) -> Upload:
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
def finished(uploaded: Uploaded, objects: Held, principal: LINKED) -> Response:
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


def _stamp(info: ObjectInfo) -> dict[str, str]:
    return {
        "X-Maskreg-Size": str(info.size),
        "X-Maskreg-Modified": info.modified.isoformat(),
        "Last-Modified": format_datetime(info.modified, usegmt=True),
    }


def _small(request: Request, key: Key, data: bytes) -> Response:
    digest = Digest.of(data)
    return _ranged(request, key, digest, len(data)) or _sliced(request, key, digest, data)


def _sliced(request: Request, key: Key, digest: Digest, data: bytes) -> Response:
    span = _span(request, digest, len(data))
    if span is None:
        return Response(data, headers=_facts(key, digest), media_type="application/octet-stream")
    first, last = span
    headers = {**_facts(key, digest), "Content-Range": f"bytes {first}-{last}/{len(data)}"}
    return Response(data[first : last + 1], 206, headers, media_type="application/octet-stream")


def _large(request: Request, objects: Objects, key: Key) -> Response:
    entry = objects.incoming.expected(key)
    digest = Digest(entry.sha256)
    if (answer := _ranged(request, key, digest, entry.size)) is not None:
        return answer
    if request.headers.get(DIRECT) != "never" and (link := objects.read_link(key)):
        # What is there is not looked up: where the link leads nowhere, the client asks again without one.
        return Response(status_code=307, headers={"Location": link, "Cache-Control": "no-store"})
    info = objects.store.head(key.key)
    if info is None:
        raise NotFoundError(f"there is no {key.key}")
    span = _span(request, digest, info.size)
    first, last = span or (0, info.size - 1)
    size = last - first + 1
    headers = {**_facts(key, digest), "Content-Length": str(size)}
    if span is not None:
        headers["Content-Range"] = f"bytes {first}-{last}/{info.size}"
    body = pieces(objects.store, key.key, first, size, max_bytes=info.size)
    return StreamingResponse(body, 206 if span else 200, headers, media_type="application/octet-stream")


def _ranged(request: Request, key: Key, digest: Digest, size: int) -> Response | None:
    # 304 for what the client has, 416 for a range that is not there.
    tags = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if f'"{digest}"' in tags or "*" in tags:
        return Response(status_code=304, headers=_facts(key, digest))
    try:
        _span(request, digest, size)
    except LimitError as error:
        return problem(416, error.message, code=error.code, headers={"Content-Range": f"bytes */{size}"})
    return None


def _span(request: Request, digest: Digest, size: int) -> tuple[int, int] | None:
    condition = request.headers.get("if-range", "").strip()
    if condition and condition != f'"{digest}"':
        return None
    return chosen(request.headers.get("range", ""), size)
