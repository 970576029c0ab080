"""Verification by the service itself: after an upload, and on request.

What a client uploads is hashed as it comes. That says nothing about the disk or the bucket that keeps it, nor whether
the objects open as an artifact. So the whole artifact is read back once, as :func:`maskreg.verify` reads it; when, and
what came of it, is in the catalog's log of events::

    push ... tag is set      requested, once                  POST /artifacts/{digest}/verify, maskreg verify --remote
    a chore of one server    hash, open                       event verify {ok, objects, bytes, damaged}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from maskreg.catalog.query import Event
from maskreg.digest import Digest
from maskreg.errors import NotFoundError
from maskreg.registry import Registry
from maskreg.registry.verify import verify
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.roles import SYSTEM
from maskreg.service.gateway.visibility import Remembered

_VERIFY = "verify"
_MOST_FAULTS = 20
_RIGHT: Remembered[Digest, bool] = Remembered(16_384)


@dataclass(frozen=True)
class Check:
    """The latest verification of an artifact.

    Attributes:
        damaged: key and fault of what is damaged; the first ones of many.
    """

    ok: bool
    by: str
    at: datetime
    objects: int
    bytes: int
    damaged: tuple[dict[str, str], ...]


def check_figures(registry: Registry, digest: Digest) -> None:
    """Compute the figures of an artifact again from its tensor table, once for each process.

    The digest proves that the manifest is unchanged, not that its publisher counted right. Neither ever changes.

    Raises:
        DataError: the manifest states other figures, or the tensor table is damaged.
    """
    if digest not in _RIGHT:
        registry.artifact(digest)
        _RIGHT.put(digest, True)


def latest_check(registry: Registry, digest: Digest) -> Check | None:
    """The latest verification on record of an artifact; None when there is none."""
    for event in registry.index.must_open().events(subject=digest, action=_VERIFY, limit=1):
        detail: dict[str, Any] = {"objects": 0, "bytes": 0, "damaged": (), **event.detail}
        damaged = tuple(dict(fault) for fault in detail["damaged"])
        return Check(bool(detail.get("ok")), event.by, event.at, detail["objects"], detail["bytes"], damaged)
    return None


def request_first_check(accounts: Accounts, registry: Registry, digest: Digest, by: str) -> None:
    """Let an artifact be verified that never was, as far as is known; without a catalog too."""
    catalog = registry.index.open()
    if catalog is None or not catalog.events(subject=digest, action=_VERIFY, limit=1):
        accounts.checks.request(digest, by)


def verify_next(accounts: Accounts, registry: Registry, beat: Callable[[], None] = lambda: None) -> bool:
    """Verify what has waited longest; False when nothing waited. ``beat`` can raise to end it: then it still waits."""
    pending = accounts.checks.next()
    if pending is None:
        return False
    try:
        report = verify(registry, pending.digest, progress=_Beating(beat))
    except NotFoundError:
        accounts.checks.done(pending)  # collected meanwhile
        return True
    damaged = [{"key": damage.key, "fault": damage.fault} for damage in report.damaged]
    detail = {
        "ok": report.ok,
        "objects": report.objects,
        "bytes": report.bytes,
        "damaged": damaged[:_MOST_FAULTS],
        "more_damaged": max(0, len(damaged) - _MOST_FAULTS),
        "requested_by": pending.by,
    }
    registry.index.must_open().log(Event(_VERIFY, pending.digest, SYSTEM.name, detail))
    accounts.checks.done(pending)
    return True


class _Beating:
    # Progress that only keeps the chore.
    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat = beat

    def start(self, label: str, total_bytes: int) -> None:
        self._beat()

    def advance(self, n_bytes: int) -> None:
        self._beat()
