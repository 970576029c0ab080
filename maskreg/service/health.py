"""Readiness: whether the parts of a server answer, known within seconds even where one of them hangs.

::

    /readyz   store, catalog, accounts      each asked on a thread of its own
    /readyz   the store is asked still      waits for the same answer, and asks nothing
    4 s       no answer                     503, which names the store; its thread stays until the store's own patience
                                            is over, and no second one is begun before
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Annotated, Self

from fastapi import APIRouter, Depends, Request, Response

from maskreg.registry.identity import check_same
from maskreg.service import observing
from maskreg.service.access import PUBLIC, Needs, Where
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.context import Service
from maskreg.service.problems import SilentError

PATIENCE_S = 4.0
"""How long a part can take to answer, in seconds; probes wait a little longer."""


class Readiness:
    """Asks the parts of a server whether they can serve. One for each event loop's application."""

    def __init__(self, checks: Mapping[str, Callable[[], object]]) -> None:
        self._checks = checks
        self._asked: dict[str, Future[None]] = {}

    @classmethod
    def of(cls, service: Service) -> Self:
        """Of a server: its store holds the registry, and its databases have this version's schema."""

        def store() -> None:
            check_same(service.registry.store, service.registry.uuid)

        def catalog() -> None:
            service.registry.index.must_open()

        return cls({"store": store, "catalog": catalog, "accounts": service.accounts.database.check})

    async def check(self) -> None:
        """Wait until all parts have answered, or one has not in time."""
        answers = {asyncio.wrap_future(self._answer(name)): name for name in self._checks}
        done, silent = await asyncio.wait(answers, timeout=PATIENCE_S, return_when=asyncio.FIRST_EXCEPTION)
        for answer in silent:
            # The thread goes on; only this request waits for it no longer.
            answer.cancel()
        for answer in done:
            answer.result()
        if silent:
            names = sorted(answers[answer] for answer in silent)
            raise SilentError(f"no answer within {PATIENCE_S:g} seconds from: {', '.join(names)}")

    def _answer(self, name: str) -> Future[None]:
        # Called in the event loop alone, so that no two requests begin the same check.
        answer = self._asked.get(name)
        if answer is None or answer.done():
            answer = self._asked[name] = Future()
            # What runs cannot be canceled, so that a request that goes takes the answer from no other.
            answer.set_running_or_notify_cancel()
            # A thread that hangs does not keep the process from ending.
            threading.Thread(target=self._ask, args=(name, answer), name=f"readiness-{name}", daemon=True).start()
        return answer

    def _ask(self, name: str, answer: Future[None]) -> None:
        try:
            self._checks[name]()
        except BaseException as error:
            # Raised again in the request that waits for it.
            answer.set_exception(error)
        else:
            answer.set_result(None)


router = APIRouter(tags=["health"])


@router.get("/livez", dependencies=[PUBLIC])
async def live() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz", dependencies=[PUBLIC])
async def ready(request: Request) -> dict[str, str]:
    """The store, the catalog and the accounts answer within seconds, and have this version's schema."""
    readiness: Readiness = request.app.state.readiness
    await readiness.check()
    return {"status": "ok"}


@router.get("/metrics", response_class=Response)
def metrics(principal: Annotated[Principal, Depends(Needs(Role.ADMIN, Where.SERVER))]) -> Response:
    """Metrics in the text format of Prometheus. `maskreg serve --metrics-port` gives them a port without a token."""
    return Response(observing.exposed(), media_type=observing.MEDIA_TYPE, headers={"Cache-Control": "no-store"})
