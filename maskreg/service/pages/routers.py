"""Every page of a server, in one table."""

from __future__ import annotations

from maskreg.service.pages import (
    activity,
    artifact,
    compare,
    jobs,
    listing,
    openid,
    settings,
    signing_in,
    static,
)

PAGES = (
    static.router,
    listing.router,
    artifact.router,
    compare.router,
    activity.router,
    jobs.router,
    settings.router,
    signing_in.router,
    openid.router,
)
"""The routers of all pages."""
