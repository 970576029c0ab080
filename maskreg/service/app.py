"""The application: its routers, which it finds, and what wraps them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import APIRouter, FastAPI
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from maskreg.service import access, api, health, observing, pages, problems
from maskreg.service.api.openapi import DescribedApp
from maskreg.service.background import Background, Follower, housekeeper
from maskreg.service.context import Service
from maskreg.service.health import Readiness
from maskreg.service.middleware import Bounded, Paced, Protected
from maskreg.service.observing import Observed
from maskreg.service.pages.rendering import error_page
from maskreg.version import __version__

# Only documents of the API: pages hold secrets beside what a visitor typed, whose guesses their length would betray.
_NOT_COMPRESSED = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "text/*", "application/octet-stream", "application/javascript")

API = "/api/v1"
"""Where the API begins."""


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
    follower = Follower(service, service.workspace.settings.home / "follow.lock")
    threads: list[Background] = [follower, housekeeper(service)]

    @asynccontextmanager
    async def during(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for thread in threads:
                await stack.enter_async_context(thread.during(app))
            yield

    app = DescribedApp(title="maskreg", version=__version__, docs_url=None, redoc_url=None, lifespan=during)
    app.state.follower = follower
    app.state.service = service
    app.state.readiness = Readiness.of(service)
    for prefix, router in routers():
        access.describe(router)
        app.include_router(router, prefix=prefix, include_in_schema="pages" not in router.tags)
    problems.install(app, error_page)
    app.add_middleware(access.Recorded, accounts=service.accounts)
    app.add_middleware(Bounded, uploads=f"{API}/objects/")
    app.add_middleware(Paced, patience_s=service.patience_s)
    # A page elsewhere whose own name leads here gets nothing (DNS rebinding).
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=service.hosts, www_redirect=False)
    app.add_middleware(Protected)
    app.add_middleware(GZipMiddleware, minimum_size=2_048, compresslevel=1, exclude_content_types=_NOT_COMPRESSED)
    observing.trace_requests(app)
    app.add_middleware(Observed, prefixes=[API])
    return app
