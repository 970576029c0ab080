"""Push and pull: object by object, each hashed in transit, the name last."""

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
from maskreg.registry.naming import Removal, Resolved
from maskreg.registry.registry import Registry
from maskreg.registry.settling import Delivery, settle
from maskreg.result import Result
from maskreg.settings import DEFAULT_JOBS
from maskreg.store import FileStore, Store
from maskreg.store.chain import check_movable
from maskreg.store.reflog import RefEntry

DEFAULT_PARTS = ("mask", "delta", "analysis")
"""What ``pull`` fetches by default: what ``apply`` needs, and analyses."""


@dataclass(frozen=True)
class Pushed(Result):
    """An artifact that was published.

    Attributes:
        ref: its name on the remote.
        digest: the artifact.
        remote: name of the remote.
        url: where the remote is, without credentials.
        parts: the parts that were local, and are on the remote now.
        sent_objects: objects that were transferred.
        sent_bytes: their size.
        reused_bytes: size of the objects that the remote had already.
        immutable: whether the name must never point to another artifact.
        replaces: the removal of another artifact from the name, which this one undid; None when there was none.
    """

    ref: Ref
    digest: Digest
    remote: str
    url: str
    parts: frozenset[str]
    sent_objects: int
    sent_bytes: int
    reused_bytes: int
    immutable: bool
    replaces: Removal | None


@dataclass(frozen=True)
class Pulled:
    """The outcome of a pull.

    Attributes:
        resolved: what the reference means, on the remote if that was asked.
        artifact: the artifact, in the local registry.
        path: its directory.
        fetched_objects, fetched_bytes: transferred.
        reused_bytes: already local, and hashed again.
        note: a message for the user; may be empty.
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
    """Publish an artifact: the objects that the remote lacks, the manifest, then the name.

    Args:
        local: where it is; only parts that are completely present are pushed.
        remote: where it goes.
        ref: what to publish.
        tag: the remote's tag; that of ``ref`` when left out.
        progress: progress callback, in bytes transferred.
        jobs: objects transferred at the same time; as many are in memory.

    Raises:
        NotFoundError: there is no such local artifact.
        CorruptError: the local artifact is damaged; nothing damaged was sent.
        ConflictError: the remote's tag moved since the command began.
        ImmutableTagError: the remote's tag must not move to another artifact; nothing was sent.
        TryAgainError: a garbage collection of the remote interferes.
        UnavailableError, NotAllowedError: the remote does not answer, or refuses.
    """
    resolved = local.resolve(ref)
    remote_ref = ref.with_tag(ref.tag if tag is None else tag)
    after = remote.head(remote_ref)
    digest = resolved.digest
    check_movable(after, digest, hint=f"maskreg push {ref} --tag OTHER-TAG")
    data, manifest = read_manifest(local.store, digest)
    parts = whole_parts(local.store, digest, manifest, listing(local.store, digest))
    if not parts:
        raise PartAbsentError(f"no part of {ref} is in {local.name}", hint=f"maskreg pull {ref}")
    needed = objects_of(manifest, parts)
    remote.ensure_uuid()
    sent = _Sent(local.store, remote.store, digest, progress)
    # The mark goes with the tag, and not to another one, such as latest.
    is_fixed = resolved.entry is not None and resolved.entry.immutable and remote_ref.tag == ref.tag
    entry = settle(
        Delivery(remote.store, digest, data, needed),
        lambda: sent.bring(needed, jobs),
        lambda: remote.append(
            remote_ref, digest, card=resolved.card, after=after, action="push", immutable=is_fixed or None
        ),
        patience_s=remote.patience_s,
    )
    reused = max(0, sum(entry.size for entry in needed) - sent.bytes)
    replaces = Removal.before(after, digest)
    return Pushed(
        *(remote_ref, digest, remote.name, remote.url, parts, sent.count, sent.bytes, reused),
        immutable=entry.immutable,
        replaces=replaces,
    )


def pull(
    local: Registry,
    remote: Registry | None,
    ref: Ref,
    *,
    parts: Collection[str] | None = DEFAULT_PARTS,
    progress: Progress = SILENT,
    jobs: int = DEFAULT_JOBS,
) -> Pulled:
    """Copy an artifact into the local registry, unless it is there already.

    An interrupted pull is resumed by the next one, and a part becomes visible only when all of it has arrived. A local
    tag moves when it was absent, or when the same remote set it last.

    Args:
        local: where it goes; a registry in a directory.
        remote: where it comes from; None to use what is local.
        ref: what to pull.
        parts: which parts; by default those of mask, delta and analysis that the artifact has.
        progress: progress callback, in bytes read.
        jobs: objects transferred at the same time; as many are in memory.

    Raises:
        NotFoundError: there is no such artifact.
        PartAbsentError: the artifact has no such part, or the remote does not hold it.
        CorruptError: the remote's objects are damaged; nothing of them became visible.
        ConflictError: the local tag points elsewhere, and this remote did not set it.
        ImmutableTagError: the local tag must not move to another artifact.
        NoSpaceError: the disk would fill up.
        UnavailableError: the remote does not answer, and the artifact is not local.
    """
    if remote is None:
        return _use_local(local, ref, parts, "no remote was asked; this is the local artifact")
    try:
        resolved = remote.resolve(ref)
    except UnavailableError as error:
        try:
            return _use_local(local, ref, parts, f"{remote.name}: {error.message}; this is the local artifact")
        except NotFoundError as missing:
            raise UnavailableError(f"{error.message}; {missing.message}", hint=error.hint) from error
    return _fetch(local, remote, resolved, parts, progress, jobs)


def _fetch(
    local: Registry,
    remote: Registry,
    resolved: Resolved,
    parts: Collection[str] | None,
    progress: Progress,
    jobs: int,
) -> Pulled:
    digest = resolved.digest
    root, store = _directory(local)
    local_ref = resolved.ref.with_tag(resolved.ref.tag)
    head = local.head(local_ref)
    origin = remote.uuid
    note = _may_move(remote, resolved, head, origin)
    data, manifest = read_manifest(remote.store, digest)
    needed = objects_of(manifest, _chosen_parts(resolved.ref, manifest, parts))
    _check_supply(local, remote, resolved, needed)
    fetched = _Fetched(remote.store, store, digest, progress)

    def name() -> RefEntry | None:
        if note or (head and head.digest == digest and not _set_by(head, origin)):
            return head
        is_fixed = resolved.entry is not None and resolved.entry.immutable
        return local.append(
            local_ref, digest, card=resolved.card, after=head, origin=origin, action="pull", immutable=is_fixed
        )

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
    # Empty when the local tag may be set, otherwise why a pinned pull does not move it.
    if head is None or head.last_digest in (None, resolved.digest) or (head.deleted and not head.immutable):
        return ""
    tag = replace(resolved.ref, digest=None)
    if resolved.ref.digest is not None:
        state = f"stays at {head.digest.short}" if head.digest else "stays removed"
        return f"{tag} {state}; {resolved.digest.short} has no local name, only its digest"
    check_movable(head, resolved.digest, hint=f"maskreg pull {tag}@{resolved.digest} leaves the tag alone")
    assert head.digest is not None  # an immutable tag that was removed has just been refused
    if _set_by(head, origin):
        return ""
    raise ConflictError(
        f"{resolved.ref} is {head.digest.short} locally and {resolved.digest.short} on {remote.name}, "
        "and the local tag was not set by this remote",
        hint=f"keep yours under another tag: maskreg tag {resolved.ref} {resolved.ref.with_tag('mine')} && "
        f"maskreg rm {resolved.ref}; or pull by digest: {resolved.ref}@{resolved.digest}",
    )


def _set_by(head: RefEntry, origin: str) -> bool:
    # An empty origin marks a local artifact, so a remote without an identity has set nothing.
    return bool(origin) and head.origin == origin


def _use_local(local: Registry, ref: Ref, parts: Collection[str] | None, note: str) -> Pulled:
    resolved = local.resolve(ref)
    artifact = local.artifact(resolved.digest)
    for part in _chosen_parts(ref, artifact.manifest, parts):
        artifact.require(part)
    root, _ = _directory(local)
    return Pulled(
        resolved,
        artifact,
        root / artifact_prefix(resolved.digest),
        reused_bytes=sum(o.size for o in objects_of(artifact.manifest, artifact.present())),
        note=note,
    )


def _chosen_parts(ref: Ref, manifest: Manifest, parts: Collection[str] | None) -> frozenset[str]:
    if parts is None or tuple(parts) == DEFAULT_PARTS:
        return frozenset(manifest.parts) & frozenset(DEFAULT_PARTS)
    for part in parts:
        if part not in manifest.parts:
            raise PartAbsentError(f"{ref} has no {part} part", hint=f"maskreg show {ref}")
    return frozenset(parts)


def _check_supply(local: Registry, remote: Registry, resolved: Resolved, needed: list[Object]) -> None:
    # A remote may hold fewer parts than the artifact has; it need not hold what is local already.
    ref, digest = resolved.ref, resolved.digest
    missing = absent(absent(needed, listing(remote.store, digest)), listing(local.store, digest))
    if missing:
        raise PartAbsentError(
            f"{remote.name} does not hold all of {ref}: {missing[0].key} is missing",
            hint=f"maskreg pull {ref} --only mask, or ask its owner to push it again",
        )


def _directory(local: Registry) -> tuple[Path, LocalStore]:
    if local.root is None:
        raise UsageError("artifacts can only be pulled into a registry in a directory")
    return local.root, local.store  # type: ignore[return-value]


@dataclass
class _Transfer:
    # What was transferred so far, over all rounds of settling; counted by many threads.
    source: Store
    target: Store
    digest: Digest
    progress: Progress
    count: int = 0
    bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count_one(self, entry: Object) -> None:
        with self.lock:
            self.count += 1
            self.bytes += entry.size


class _Sent(_Transfer):
    def bring(self, needed: list[Object], jobs: int) -> None:
        missing = absent(needed, listing(self.target, self.digest))
        if isinstance(self.target, FileStore):
            check_space(self.target.root, sum(entry.size for entry in missing))
        self.progress.start("push", sum(entry.size for entry in missing))
        each(missing, self._send, jobs)

    def _send(self, entry: Object) -> None:
        data = read_object(self.source, self.digest, entry)
        self.target.put(artifact_prefix(self.digest) + entry.key, data)
        self.count_one(entry)
        self.progress.advance(entry.size)


class _Fetched(_Transfer):
    target: LocalStore

    def bring(self, needed: list[Object], jobs: int) -> None:
        missing = {entry.key for entry in absent(needed, listing(self.target, self.digest))}
        landing = Landing(self.target, self.digest)
        waiting = landing.waiting()
        to_fetch = [o for o in needed if o.key in missing and waiting.get(o.key) != o.size]
        check_space(self.target.root, sum(entry.size for entry in to_fetch))
        landed: list[Object] = []
        self.progress.start("pull", sum(entry.size for entry in needed))

        def fetch(entry: Object) -> None:
            if entry.key in missing or not self._is_sound(entry):
                if not landing.has(entry):
                    landing.put(entry, read_object(self.source, self.digest, entry))
                    self.count_one(entry)
                landed.append(entry)
            self.progress.advance(entry.size)

        each(needed, fetch, jobs)
        landing.admit(landed)
        landing.prune()

    def _is_sound(self, entry: Object) -> bool:
        try:
            data = self.target.get(artifact_prefix(self.digest) + entry.key, max_bytes=entry.size)
        except NotFoundError:
            return False
        return matches(data, entry)
