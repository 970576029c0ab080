"""The application: every router in one table."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI
from starlette.middleware.trustedhost import TrustedHostMiddleware

from maskreg.service import access, problems
from maskreg.service.api import accounts, artifacts, events, health, objects, patches, tags
from maskreg.service.context import Service
from maskreg.service.headers import Protected
from maskreg.service.pages import artifact, errors, jobs, listing, signing_in, static
from maskreg.version import __version__

API = "/api/v1"
"""Where the API begins."""

ROUTERS: list[tuple[str, APIRouter]] = [
    ("", health.router),
    (API, accounts.router),
    (API, artifacts.router),
    (API, tags.router),
    (API, events.router),
    (API, objects.router),
    (API, patches.router),
    ("", static.router),
    ("", listing.router),
    ("", artifact.router),
    ("", jobs.router),
    ("", signing_in.router),
]
"""Every router, and what its paths begin with."""


def create_app(service: Service) -> FastAPI:
    """The application of a server.

    Args:
        service: the server's parts; whoever made them closes them.
    """
    app = FastAPI(title="maskreg", version=__version__, docs_url=None, redoc_url=None)
    app.state.service = service
    for prefix, router in ROUTERS:
        access.record(router)
        app.include_router(router, prefix=prefix)
    problems.install(app, errors.page)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(service.hosts))
    app.add_middleware(Protected)
    return app
