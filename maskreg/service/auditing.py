"""The audit log of changes over HTTP: every request that may have changed something, by whom, with which token.

Accounts record their own changes, in the transaction that makes them. All else is recorded here, when the request has
succeeded and before its sender is told so. Objects of artifacts are left out: nobody sees them until an entry of a ref
log names them, and that entry is recorded.
"""

from __future__ import annotations

import re

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from maskreg.errors import MaskregError
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.roles import Principal
from maskreg.service.faults import public_of
from maskreg.service.problems import problem_of

_UNSAFE = ("POST", "PUT", "PATCH", "DELETE")
_OWN_RECORD = re.compile(
    r"/api/v1/(?:projects(?:/[^/]+(?:/(?:members|tokens|quota)(?:/.*)?)?)?|tokens(?:/.*)?|patches(?:/.*)?)"
    r"|/settings/.*|/sign-(?:in|out)(?:/.*)?"
)
_UNSEEN = re.compile(r"/api/v1/(?:objects/(?:artifacts|announced|names|probe|doomed|gc)/.*|uploads(?:/finished)?)")
_ENTRY = re.compile(r"/api/v1/objects/(?:refs|keys)/(?P<project>[^/]+)/.*")


class Audited:
    """Wraps an application, and records what is changed through it."""

    def __init__(self, app: ASGIApp, accounts: Accounts) -> None:
        """Wrap an application."""
        self.app = app
        self._accounts = accounts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] not in _UNSAFE or not _is_recorded(scope):
            await self.app(scope, receive, send)
            return

        unrecorded: MaskregError | None = None

        async def recorded(message: Message) -> None:
            nonlocal unrecorded
            if message["type"] == "http.response.start" and message["status"] < 400:
                principal = scope.get("state", {}).get("principal")
                try:
                    if principal is not None:
                        await run_in_threadpool(self._record, scope, principal)
                except MaskregError as error:
                    unrecorded = error
            if unrecorded is None:
                await send(message)

        await self.app(scope, receive, recorded)
        if unrecorded is not None:
            # Whoever is told that it failed does it again, which is recorded.
            await problem_of(public_of(unrecorded))(scope, receive, send)

    def _record(self, scope: Scope, principal: Principal) -> None:
        path: str = scope["path"]
        entry = _ENTRY.fullmatch(path)
        project = entry["project"] if entry else scope.get("path_params", {}).get("project", "")
        subject = path.removeprefix("/api/v1/")
        self._accounts.log(principal, scope["method"].lower(), project=project, subject=subject)


def _is_recorded(scope: Scope) -> bool:
    path: str = scope["path"]
    if _OWN_RECORD.fullmatch(path):
        return False
    # Who deletes objects does change what others see.
    return scope["method"] == "DELETE" or not _UNSEEN.fullmatch(path)
