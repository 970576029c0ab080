"""Replicas: what the servers of a run serve, and how far behind its tag they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from maskreg.digest import Digest
from maskreg.errors import MaskregError, NotFoundError, UsageError
from maskreg.parallel import ordered
from maskreg.ref import Ref
from maskreg.registry.expiry import version_of
from maskreg.result import Result
from maskreg.store.asking import ask
from maskreg.store.reflog import RefEntry
from maskreg.workspace.workspace import Workspace, as_ref, registry_of

_QUESTION = b'{"method": "maskreg_served"}'
_READ_SECONDS, _MAX_ANSWER_BYTES = 30.0, 1 << 20
_AT_ONCE = 16


@dataclass(frozen=True)
class Replica(Result):
    """A server of vLLM, or the reason that it did not say what it serves.

    Attributes:
        digest: the version that all of its workers serve; None before the first update, or where they differ.
        behind: how many newer versions the tag has had; None where it never had this one.
        meta: what the publisher said about the version, such as its step.
        fault: why nothing else is known; empty where it is.
    """

    url: str
    digest: Digest | None = None
    behind: int | None = None
    meta: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True)
class Replicas(Result):
    """Servers of a run, in the order in which they were named, and the version that its tag points to."""

    ref: Ref
    digest: Digest
    replicas: tuple[Replica, ...]


def replicas(
    ref: str | Ref, urls: Sequence[str], *, remote: str | None = None, workspace: Workspace | None = None
) -> Replicas:
    """Ask servers of vLLM, started with maskreg's worker extension, which version of a run they serve.

    Raises:
        NotFoundError: there is no such tag.
        UsageError: no URL of HTTP, or none at all.
    """
    if not urls or not all(url.startswith(("http://", "https://")) for url in urls):
        raise UsageError("servers are named by URLs of HTTP", hint="name servers like http://127.0.0.1:8000")
    with registry_of(remote, workspace) as (_, registry):
        ref = as_ref(ref)
        head, *earlier = reversed(registry.history(ref))
        if head.digest is None:
            raise NotFoundError(f"there is no {ref}")
        entries = [head, *(entry for entry in earlier if entry.digest is not None)]
        found = ordered(lambda url: _asked(url, entries), urls, jobs=min(_AT_ONCE, len(urls)))
        return Replicas(ref, head.digest, tuple(found))


def _asked(url: str, entries: Sequence[RefEntry]) -> Replica:
    """``entries``: of the tag, the newest first."""
    path = f"{url.rstrip('/')}/collective_rpc"
    try:
        answer = json.loads(ask(path, _QUESTION, read_seconds=_READ_SECONDS, max_bytes=_MAX_ANSWER_BYTES))
        served = {worker["digest"] if worker else "" for worker in answer["results"]}
        digests = [Digest(text) if text else None for text in served]
    except MaskregError as error:
        if error.facts.get("status") == 404:
            return Replica(url, fault="is no server of vLLM in development mode (VLLM_SERVER_DEV_MODE=1)")
        return Replica(url, fault=error.message.removeprefix(f"{path} "))
    except (ValueError, KeyError, TypeError):
        return Replica(url, fault="answered something else than what maskreg's worker extension says")
    if len(digests) != 1:
        return Replica(url, fault="has workers that serve different versions: an update has begun, or failed")
    if (digest := digests[0]) is None:
        return Replica(url, fault="serves what it was started from: no update has come")
    count, own = behind(entries, digest)
    return Replica(url, digest) if own is None else Replica(url, digest, count, own.card.meta)


def behind(entries: Sequence[RefEntry], digest: Digest) -> tuple[int, RefEntry | None]:
    """How many versions of a tag are newer than an artifact, and the artifact's entry; None where it has none.

    Args:
        entries: of the tag, removals left out, the newest first.
    """
    newer = [*takewhile(lambda entry: entry.digest != digest, entries)]
    own = entries[len(newer)] if len(newer) < len(entries) else None
    return len({_version(entry) for entry in newer} - {_version(own) if own else None}), own


def _version(entry: RefEntry) -> int | Digest | None:
    """What entries of one version share: a link and its anchor, or one artifact before and after an annotation."""
    return version_of(entry) or entry.digest
