"""Artifacts between registries: object by object, each hashed on the way, the name last."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from maskreg.artifact.layout import artifact_prefix
from maskreg.artifact.manifest import Manifest, Object
from maskreg.artifact.presence import absent, listing, matches, objects_of, read_manifest, read_object, whole_parts
from maskreg.artifact.reader import Artifact
from maskreg.digest import Digest
from maskreg.errors import ConflictError, NotFoundError, PartAbsentError, UnavailableError, UsageError
from maskreg.parallel import each
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry.landing import Landing, LocalStore, check_space
from maskreg.registry.naming import Resolved
from maskreg.registry.registry import Registry
from maskreg.registry.settling import Delivery, settle
from maskreg.settings import DEFAULT_JOBS
from maskreg.store import FileStore, Store
from maskreg.store.reflog import RefEntry

DEFAULT_PARTS = ("mask", "delta", "analysis")
"""What ``pull`` brings: all that ``apply`` needs, and figures."""


@dataclass(frozen=True)
class Pushed:
    """What a push did.

    Attributes:
        entry: where the remote's tag stands now.
        parts: the parts that were local and are on the remote now.
        sent_objects, sent_bytes: what had to travel.
        reused_bytes: what was there already.
    """

    entry: RefEntry
    parts: frozenset[str]
    sent_objects: int
    sent_bytes: int
    reused_bytes: int


@dataclass(frozen=True)
class Pulled:
    """What a pull did.

    Attributes:
        resolved: what the reference means, on the remote when it was asked.
        artifact: the artifact, in the local registry.
        path: its directory.
        fetched_objects, fetched_bytes: what had to travel.
        reused_bytes: what was here already, and was hashed again.
        note: what people should know; empty when there is nothing.
    """

    resolved: Resolved
    artifact: Artifact
    path: Path
    fetched_objects: int = 0
    fetched_bytes: int = 0
    reused_bytes: int = 0
    note: str = ""


def push(
    local: Registry,
    remote: Registry,
    ref: Ref,
    *,
    tag: str | None = None,
    progress: Progress = SILENT,
    jobs: int = DEFAULT_JOBS,
) -> Pushed:
    """Publish an artifact: objects that are missing there, the manifest, then the name.

    Args:
        local: where it is; only parts that are wholly here are sent.
        remote: where it goes.
        ref: what to publish.
        tag: the tag to set there; that of ``ref`` when left out.
        progress: hears of the bytes that travel.
        jobs: objects that travel at the same time; as many are in memory.

    Raises:
        NotFoundError: there is no such artifact here.
        CorruptError: it is damaged here; nothing damaged was sent.
        ConflictError: the remote's tag moved since the command began.
        TryAgainError: a garbage collection of the remote gets in the way.
        UnavailableError, NotAllowedError: the remote does not answer, or refuses.
    """
    resolved = local.resolve(ref)
    there = ref.with_tag(ref.tag if tag is None else tag)
    after = remote.head_number(there)
    digest = resolved.digest
    data, manifest = read_manifest(local.store, digest)
    parts = whole_parts(local.store, digest, manifest, listing(local.store, digest))
    if not parts:
        raise PartAbsentError(f"no part of {ref} is here", hint=f"maskreg pull {ref}")
    needed = objects_of(manifest, parts)
    remote.ensure_uuid()
    sent = _Sent(local.store, remote.store, digest, progress)
    entry = settle(
        Delivery(remote.store, digest, data, needed),
        lambda: sent.bring(needed, jobs),
        lambda: remote.append(there, digest, card=resolved.card, after=after, action="push"),
        patience_s=remote.patience_s,
    )
    return Pushed(entry, parts, sent.count, sent.bytes, max(0, sum(o.size for o in needed) - sent.bytes))


def pull(
    local: Registry,
    remote: Registry | None,
    ref: Ref,
    *,
    parts: Collection[str] | None = DEFAULT_PARTS,
    progress: Progress = SILENT,
    jobs: int = DEFAULT_JOBS,
) -> Pulled:
    """Bring an artifact into the local registry, or find it there.

    What an interrupted pull brought is used by the next one, and nothing of a part is to be seen before all of it
    is here. A local tag moves when it was absent, or when the same remote set it last.

    Args:
        local: where it goes; a registry in a directory.
        remote: where it comes from; None to use what is here.
        ref: what to bring.
        parts: which parts; by default mask, delta and analysis, or of them what the artifact has.
        progress: hears of the bytes that are read.
        jobs: objects that travel at the same time; as many are in memory.

    Raises:
        NotFoundError: there is no such artifact.
        PartAbsentError: it lacks a part, or the remote does.
        CorruptError: the remote's objects are damaged; nothing of them became visible.
        ConflictError: the local tag points elsewhere, and not because of this remote.
        NoSpaceError: the disk would fill up.
        UnavailableError: the remote does not answer, and the artifact is not here.
    """
    if remote is None:
        return _use_local(local, ref, parts, "no remote was asked: this is what is here")
    try:
        resolved = remote.resolve(ref)
    except UnavailableError as error:
        try:
            return _use_local(local, ref, parts, f"{remote.name} does not answer: this is what is here")
        except NotFoundError as missing:
            raise UnavailableError(f"{error.message}; {missing.message}", hint=error.hint) from error
    return _bring(local, remote, resolved, parts, progress, jobs)


def _bring(
    local: Registry,
    remote: Registry,
    resolved: Resolved,
    parts: Collection[str] | None,
    progress: Progress,
    jobs: int,
) -> Pulled:
    digest = resolved.digest
    root, store = _directory(local)
    here = resolved.ref.with_tag(resolved.ref.tag)
    head = local.head(here)
    origin = remote.uuid
    note = _may_move(remote, resolved, head, origin)
    data, manifest = read_manifest(remote.store, digest)
    wanted = _asked(resolved.ref, manifest, parts)
    needed = objects_of(manifest, wanted)
    _check_supply(local, remote, resolved, needed)
    fetched = _Fetched(remote.store, store, digest, progress)

    def name() -> RefEntry | None:
        if note or (head and head.digest == digest and not _set_by(head, origin)):
            return head
        after = head.n if head else 0
        return local.append(here, digest, card=resolved.card, after=after, origin=origin, action="pull")

    local.ensure_uuid()
    delivery = Delivery(store, digest, data, needed)
    settle(delivery, lambda: fetched.bring(needed, jobs), name, patience_s=local.patience_s)
    return Pulled(
        resolved,
        local.artifact(digest),
        root / artifact_prefix(digest),
        fetched.count,
        fetched.bytes,
        max(0, sum(o.size for o in needed) - fetched.bytes),
        note,
    )


def _may_move(remote: Registry, resolved: Resolved, head: RefEntry | None, origin: str) -> str:
    # Empty when the local tag may be set, otherwise why a pinned pull leaves it where it is.
    if head is None or head.deleted or head.digest is None or head.digest == resolved.digest:
        return ""
    if resolved.ref.digest is not None:
        tag = replace(resolved.ref, digest=None)
        return f"{tag} stays at {head.digest.short}; nothing here but its digest names {resolved.digest.short}"
    if _set_by(head, origin):
        return ""
    raise ConflictError(
        f"{resolved.ref} is {head.digest.short} here and {resolved.digest.short} on {remote.name}, "
        "and it was not this remote that set it here",
        hint=f"keep yours under another tag: maskreg tag {resolved.ref} {resolved.ref.with_tag('mine')} && "
        f"maskreg rm {resolved.ref}; or pull by digest: {resolved.ref}@{resolved.digest}",
    )


def _set_by(head: RefEntry, origin: str) -> bool:
    # A registry without an identity has set nothing here: an empty origin says "made here".
    return bool(origin) and head.origin == origin


def _use_local(local: Registry, ref: Ref, parts: Collection[str] | None, note: str) -> Pulled:
    resolved = local.resolve(ref)
    artifact = local.artifact(resolved.digest)
    for part in _asked(ref, artifact.manifest, parts):
        artifact.require(part)
    root, _ = _directory(local)
    return Pulled(
        resolved,
        artifact,
        root / artifact_prefix(resolved.digest),
        reused_bytes=sum(o.size for o in objects_of(artifact.manifest, artifact.present())),
        note=note,
    )


def _asked(ref: Ref, manifest: Manifest, parts: Collection[str] | None) -> frozenset[str]:
    if parts is None or tuple(parts) == DEFAULT_PARTS:
        return frozenset(manifest.parts) & frozenset(DEFAULT_PARTS)
    for part in parts:
        if part not in manifest.parts:
            raise PartAbsentError(f"{ref} has no {part} part", hint=f"maskreg show {ref}")
    return frozenset(parts)


def _check_supply(local: Registry, remote: Registry, resolved: Resolved, needed: list[Object]) -> None:
    # A remote may hold fewer parts than the artifact has; what is here already need not be there.
    ref, digest = resolved.ref, resolved.digest
    lost = absent(absent(needed, listing(remote.store, digest)), listing(local.store, digest))
    if lost:
        raise PartAbsentError(
            f"{remote.name} does not have all of {ref}: {lost[0].key} is missing there",
            hint=f"maskreg pull {ref} --only mask, or ask whoever made it to push it again",
        )


def _directory(local: Registry) -> tuple[Path, LocalStore]:
    if local.root is None:
        raise UsageError("artifacts are pulled into a registry in a directory")
    return local.root, local.store  # type: ignore[return-value]


@dataclass
class _Traveling:
    # What traveled so far, over all rounds; counted by many threads.
    source: Store
    place: Store
    digest: Digest
    progress: Progress
    count: int = 0
    bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def traveled(self, entry: Object) -> None:
        with self.lock:
            self.count += 1
            self.bytes += entry.size


class _Sent(_Traveling):
    def bring(self, needed: list[Object], jobs: int) -> None:
        missing = absent(needed, listing(self.place, self.digest))
        if isinstance(self.place, FileStore):
            check_space(self.place.root, sum(entry.size for entry in missing))
        self.progress.start("push", sum(entry.size for entry in missing))
        each(missing, self._send, jobs)

    def _send(self, entry: Object) -> None:
        data = read_object(self.source, self.digest, entry)
        self.place.put(artifact_prefix(self.digest) + entry.key, data)
        self.traveled(entry)
        self.progress.advance(entry.size)


class _Fetched(_Traveling):
    place: LocalStore

    def bring(self, needed: list[Object], jobs: int) -> None:
        here = listing(self.place, self.digest)
        missing = {entry.key for entry in absent(needed, here)}
        landing = Landing(self.place, self.digest)
        waiting = landing.waiting()
        to_come = [o for o in needed if o.key in missing and waiting.get(o.key) != o.size]
        check_space(self.place.root, sum(entry.size for entry in to_come))
        landed: list[Object] = []
        self.progress.start("pull", sum(entry.size for entry in needed))

        def fetch(entry: Object) -> None:
            if entry.key in missing or not self._is_sound(entry):
                if not landing.has(entry):
                    landing.put(entry, read_object(self.source, self.digest, entry))
                    self.traveled(entry)
                landed.append(entry)
            self.progress.advance(entry.size)

        each(needed, fetch, jobs)
        landing.admit(landed)
        landing.prune()

    def _is_sound(self, entry: Object) -> bool:
        try:
            data = self.place.get(artifact_prefix(self.digest) + entry.key, max_bytes=entry.size)
        except NotFoundError:
            return False
        return matches(data, entry)
