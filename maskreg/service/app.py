"""The application: its routers, which it finds, what wraps them, and its OpenAPI document.

Routes describe their answers when all is well. Added here, in one place: who can send a request and how they prove it,
and that every error is a problem (``application/problem+json``) with one of the codes of :mod:`maskreg.errors`.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.types import Message, Receive, Scope, Send

from maskreg.service import access, api, health, observing, pages, problems
from maskreg.service.access import COOKIE, Where
from maskreg.service.background import Background, Indexer, housekeeper
from maskreg.service.context import Service
from maskreg.service.gateway.objects import Objects
from maskreg.service.health import Readiness
from maskreg.service.middleware import Bounded, KnownHosts, Protected
from maskreg.service.moves import Moves
from maskreg.service.observing import Observed
from maskreg.service.pages.rendering import error_page
from maskreg.service.problems import MEDIA_TYPE, is_taken
from maskreg.service.replicas import Replicas, RunsObserver
from maskreg.version import __version__

# Only documents of the API: pages hold secrets beside what a visitor typed, whose guesses their length would betray.
_NOT_COMPRESSED = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "text/*", "application/octet-stream", "application/javascript")

API = "/api/v1"
"""Where the API begins."""


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
        "hint": {"type": "string", "description": "What helps; absent when nothing does."},
        "see": {"type": "string", "description": "A request that tells more; absent when there is none."},
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
            components = document.setdefault("components", {})
            schemas = components.setdefault("schemas", {})
            for name in _UNSEEN:
                schemas.pop(name, None)
            schemas["Problem"] = _PROBLEM
            components["securitySchemes"] = _SCHEMES
            for path, operations in document["paths"].items():
                for operation in operations.values():
                    _describe_operation(path, operation)
            self.openapi_schema = document
        return self.openapi_schema


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
        responses.setdefault("404", {"description": "There is none that the sender can read."})
    responses["default"] = {"description": "A problem."}
    for status, response in responses.items():
        if status == "default" or status[0] in "45":
            response["content"] = _CONTENT


def routers() -> Iterator[tuple[str, APIRouter]]:
    """Every router, and what its paths begin with: ``router`` in each module of ``api`` and of ``pages``."""
    yield "", health.router
    for package, prefix in ((api, API), (pages, "")):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            router = getattr(importlib.import_module(module.name), "router", None)
            if router is not None:
                yield prefix, router


def create_app(service: Service) -> FastAPI:
    """The application of a server."""
    indexer = Indexer(service)
    replicas = Replicas(os.environ.get(observing.FOLDER, ""))
    threads: list[Background] = [indexer, housekeeper(service), RunsObserver(service, replicas)]

    @asynccontextmanager
    async def during(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for thread in threads:
                await stack.enter_async_context(thread.during(app))
            yield

    app = DescribedApp(title="maskreg", version=__version__, docs_url=None, redoc_url=None, lifespan=during)
    app.state.indexer = indexer
    app.state.replicas = replicas
    app.state.service = service
    app.state.objects = Objects(service.registry, service.accounts)
    app.state.moves = Moves(service.registry)
    app.state.readiness = Readiness.of(service)
    for prefix, router in routers():
        access.describe(router)
        app.include_router(router, prefix=prefix, include_in_schema="pages" not in router.tags)
    problems.install(app, error_page)
    app.add_middleware(access.Recorded, accounts=service.accounts)
    app.add_middleware(Bounded, uploads=f"{API}/objects/")
    app.add_middleware(KnownHosts, hosts=service.hosts)
    app.add_middleware(Protected)
    app.add_middleware(GZipMiddleware, minimum_size=2_048, compresslevel=1, exclude_content_types=_NOT_COMPRESSED)
    observing.trace_requests(app)
    app.add_middleware(Observed, prefix=API)
    return app
