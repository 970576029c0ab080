"""The OpenAPI document: what routes say of themselves, and what holds for all of them.

Routes describe their answers when all is well. Added here, in one place: who may send a request and how they prove it,
and that every error is a problem (``application/problem+json``) with one of the codes of :mod:`maskreg.errors`.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.types import Message, Receive, Scope, Send

from maskreg.service.access import COOKIE, Where
from maskreg.service.problems import MEDIA_TYPE, is_taken

_PROBLEM: dict[str, Any] = {
    "title": "Problem",
    "description": "What is wrong (RFC 9457).",
    "type": "object",
    "required": ["type", "title", "status", "code"],
    "properties": {
        "type": {"type": "string", "const": "about:blank"},
        "title": {"type": "string", "description": "What is wrong, in one sentence."},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "code": {"type": "string", "description": "Stable identifier, for programs.", "examples": ["NOT_FOUND"]},
        "hint": {"type": "string", "description": "The next step; absent when there is none."},
    },
}

_SCHEMES: dict[str, Any] = {
    "token": {"type": "http", "scheme": "bearer", "description": "A token of `maskreg token create`."},
    "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "A browser that signed in on a page."},
}

_CONTENT = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_UNSEEN = ("HTTPValidationError", "ValidationError")  # what FastAPI would answer to a malformed request


class DescribedApp(FastAPI):
    """An application whose document says of every route who can use it and how it fails, and that answers HEAD."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer HEAD like GET, without the body, wherever no route of its own does."""
        if scope["type"] != "http" or scope["method"] != "HEAD" or is_taken(self, scope):
            await super().__call__(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await super().__call__({**scope, "method": "GET"}, receive, without_body)

    def openapi(self) -> dict[str, Any]:
        """The document; made once."""
        if self.openapi_schema is None:
            document = get_openapi(title=self.title, version=self.version, routes=self.routes)
            _describe(document)
            self.openapi_schema = document
        return self.openapi_schema


def _describe(document: dict[str, Any]) -> None:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in _UNSEEN:
        schemas.pop(name, None)
    schemas["Problem"] = _PROBLEM
    components["securitySchemes"] = _SCHEMES
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _describe_operation(path, operation)


def _describe_operation(path: str, operation: dict[str, Any]) -> None:
    access = operation.get("x-access", {"where": Where.NOWHERE})  # what an application itself has added says nothing
    responses = operation["responses"]
    responses.pop("422", None)
    if access["where"] != Where.NOWHERE:
        # Visitors read public projects.
        optional = access["role"] in ("none", "reader") and access["where"] in (Where.PROJECT, Where.ANY)
        operation["security"] = [{name: []} for name in _SCHEMES] + ([{}] if optional else [])
        responses.setdefault("401", {"description": "There is no valid token."})
        responses.setdefault("403", {"description": "The sender's role is too low."})
    if "{" in path:
        responses.setdefault("404", {"description": "There is none that the sender may read."})
    responses["default"] = {"description": "A problem."}
    for status, response in responses.items():
        if status == "default" or status[0] in "45":
            response["content"] = _CONTENT
