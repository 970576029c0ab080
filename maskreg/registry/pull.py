"""Pull: objects that are not local, each hashed before a part becomes visible, and the name last."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from maskreg import errors
from maskreg.artifact.layout import artifact_prefix, part_of
from maskreg.artifact.presence import (
    absent,
    listing,
    matches,
    objects_of,
    part_lacking,
    read_manifest,
    read_object,
    whole_parts,
)
from maskreg.digest import Digest
from maskreg.parallel import each
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry.registry import Registry, Resolved
from maskreg.registry.settle import Settling
from maskreg.registry.transfer import Copying, Landing, newer_readme, space_for, track, tracked
from maskreg.settings import DEFAULT_JOBS
from maskreg.store import FileStore
from maskreg.store.chain import check_movable
from maskreg.store.reflog import RefEntry

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest, Object
    from maskreg.artifact.reader import Artifact

DEFAULT_PARTS = ("mask", "delta", "analysis")
"""What ``pull`` fetches by default: what ``apply`` needs, and analyses."""


@dataclass(frozen=True)
class PullOutcome:
    """The outcome of a pull.

    Attributes:
        resolved: what the reference means, on the remote if that was asked.
        reused_bytes: already local, and hashed again.
        note: a message for the user; can be empty.
    """

    resolved: Resolved
    artifact: Artifact
    fetched_objects: int = 0
    fetched_bytes: int = 0
    reused_bytes: int = 0
    note: str = ""

    @property
    def path(self) -> Path:
        """Directory of the artifact."""
        files = self.artifact.store.files
        assert files is not None  # it was pulled into a directory
        return files.root / artifact_prefix(self.artifact.digest)


def pull(
    local: Registry,
    remote: Registry | None,
    ref: Ref,
    *,
    parts: Collection[str] | None = DEFAULT_PARTS,
    progress: Progress = SILENT,
    jobs: int = DEFAULT_JOBS,
) -> PullOutcome:
    """Copy an artifact into the local registry, unless it is there already.

    An interrupted pull is resumed by the next one, and a part becomes visible only when all of it has arrived. A local
    tag moves when it was absent, when the same remote set it last, or when this machine pushed it there as it is.
    """
    if remote is None:
        return _use_local(local, ref, parts, "no remote was asked; this is the local artifact")
    try:
        resolved = remote.resolve(ref)
    except errors.UnavailableError as error:
        try:
            return _use_local(local, ref, parts, f"{remote.name}: {error.message}; this is the local artifact")
        except errors.NotFoundError as missing:
            raise errors.UnavailableError(
                f"{error.message}; {missing.message}", hint=error.hint, **error.facts
            ) from error
    return _fetch(local, remote, resolved, parts, progress, jobs)


def _fetch(
    local: Registry, remote: Registry, resolved: Resolved, parts: Collection[str] | None, progress: Progress, jobs: int
) -> PullOutcome:
    digest = resolved.digest
    store = _directory(local)
    local_ref = resolved.ref.with_tag(resolved.ref.tag)
    head = local.head(local_ref)
    origin = remote.uuid
    note = _may_move(local, remote, resolved, head, origin)
    data, manifest = read_manifest(remote.store, digest)
    needed = objects_of(manifest, _chosen_parts(resolved.ref, manifest, parts))
    _check_supply(local, remote, resolved.ref, digest, manifest, needed)
    fetched = _Fetched(remote.store, store, digest, progress)
    local.ensure_uuid()
    is_fixed = resolved.entry is not None and resolved.entry.immutable
    with Settling(store, digest, data, needed, lambda: fetched.bring(needed, jobs), progress):
        if not (note or (head and head.digest == digest and not _set_by(head, origin))):
            mine = "" if head is None or head.deleted else head.card.readme
            card = replace(resolved.card, readme=newer_readme(remote, mine, resolved.entry))
            try:
                local.append(local_ref, digest, card=card, after=head, origin=origin, action="pull", immutable=is_fixed)
            except errors.NotAllowedError as error:
                raise _unwritable_tag(local_ref, resolved, head, error) from error
    if origin and not note:
        track(local, remote, local_ref, digest)
    return PullOutcome(
        resolved,
        local.artifact(digest),
        fetched.count,
        fetched.bytes,
        max(0, sum(o.size for o in needed) - fetched.bytes),
        note,
    )


def bring(
    local: Registry,
    remote: Registry | None,
    digest: Digest,
    *,
    parts: Collection[str],
    progress: Progress = SILENT,
    jobs: int = DEFAULT_JOBS,
) -> tuple[Artifact, int]:
    """Copy parts of an artifact into the local registry, unless they are there, and give it no name.

    Garbage collection spares it for its grace period.

    Returns:
        The artifact, and how many bytes were fetched.
    """
    store = _directory(local)
    size = 0
    if remote is not None and not set(parts) <= _present(local, digest):
        data, manifest = read_manifest(remote.store, digest)
        needed = objects_of(manifest, parts)
        _check_supply(local, remote, None, digest, manifest, needed)
        fetched = _Fetched(remote.store, store, digest, progress)
        local.ensure_uuid()
        bring_it = partial(fetched.bring, needed, jobs)
        # It gets no name, so there is no second look.
        Settling(store, digest, data, needed, bring_it, progress).make_whole()
        size = fetched.bytes
    artifact = local.artifact(digest)
    for part in parts:
        artifact.require(part)
    return artifact, size


def _present(local: Registry, digest: Digest) -> frozenset[str]:
    try:
        _, manifest = read_manifest(local.store, digest)
        return whole_parts(local.store, digest, manifest, listing(local.store, digest))
    except (errors.NotFoundError, errors.DataError):
        # What is damaged or incomplete here is brought again.
        return frozenset()


def _may_move(local: Registry, remote: Registry, resolved: Resolved, head: RefEntry | None, origin: str) -> str:
    # Empty when the local tag can be set, otherwise why a pinned pull does not move it.
    if head is None or head.last_digest in (None, resolved.digest) or (head.deleted and not head.immutable):
        return ""
    tag = replace(resolved.ref, digest=None)
    if resolved.ref.digest is not None:
        state = f"stays at {head.digest.short}" if head.digest else "stays removed"
        return f"{tag} {state}; {resolved.digest.short} has no local name, only its digest"
    check_movable(head, resolved.digest, hint=f"pull {tag}@{resolved.digest}, which leaves the tag alone")
    assert head.digest is not None  # an immutable tag that was removed has just been refused
    if _set_by(head, origin) or head.digest in tracked(local, remote, tag):
        return ""
    raise errors.ConflictError(
        f"{resolved.ref} is {head.digest.short} locally and {resolved.digest.short} on {remote.name}, "
        "and the local tag was not set by this remote",
        hint=f"pull {resolved.ref}@{resolved.digest}, or keep yours under another tag",
        mine=resolved.ref,
        mine_as=resolved.ref.with_tag("mine"),
    )


def _unwritable_tag(
    ref: Ref, resolved: Resolved, head: RefEntry | None, error: errors.NotAllowedError
) -> errors.NotAllowedError:
    if head is not None and head.digest == resolved.digest:
        change = f"{ref} has another card on the remote than locally"
    else:
        change = f"{ref} has to move to {resolved.digest.short} locally"
    return errors.NotAllowedError(f"{change}: {error.message}", hint=error.hint, **error.facts)


def _set_by(head: RefEntry, origin: str) -> bool:
    # An empty origin marks a local artifact, so a remote without an identity has set nothing.
    return bool(origin) and head.origin == origin


def _use_local(local: Registry, ref: Ref, parts: Collection[str] | None, note: str) -> PullOutcome:
    resolved = local.resolve(ref)
    artifact = local.artifact(resolved.digest)
    artifact.name = str(ref)
    for part in _chosen_parts(ref, artifact.manifest, parts):
        artifact.require(part)
    _directory(local)
    return PullOutcome(
        resolved,
        artifact,
        reused_bytes=sum(o.size for o in objects_of(artifact.manifest, artifact.present())),
        note=note,
    )


def _chosen_parts(ref: Ref, manifest: Manifest, parts: Collection[str] | None) -> frozenset[str]:
    if parts is None or tuple(parts) == DEFAULT_PARTS:
        return frozenset(manifest.parts) & frozenset(DEFAULT_PARTS)
    for part in parts:
        if part not in manifest.parts:
            raise part_lacking(str(ref), part, ref=ref)
    return frozenset(parts)


def _check_supply(
    local: Registry, remote: Registry, ref: Ref | None, digest: Digest, manifest: Manifest, needed: list[Object]
) -> None:
    # A remote can hold fewer parts than the artifact has; it need not hold what is local already.
    there = listing(remote.store, digest)
    missing = absent(absent(needed, there), listing(local.store, digest))
    if missing:
        # A part that was not asked for alone, and that is whole there.
        asked = {part_of(entry.key) for entry in needed} - {""}
        held = {part for part in manifest.parts if not absent(objects_of(manifest, {part}), there)}
        other = sorted(held - (asked if len(asked) == 1 else set())) if ref else []
        raise errors.PartAbsentError(
            f"{remote.name} does not hold all of {ref or digest.short}: {missing[0].key} is missing",
            hint="ask its owner to push it again" + ("; another part is there" if other else ""),
            **({"ref": ref} if ref else {}),
            **({"elsewhere": other[0]} if other else {}),
        )


def _directory(local: Registry) -> FileStore:
    if local.root is None:
        raise errors.UsageError("artifacts can only be pulled into a registry in a directory")
    return local.store  # type: ignore[return-value]  # what a root has


class _Fetched(Copying):
    target: FileStore

    def bring(self, needed: list[Object], jobs: int) -> None:
        missing = {entry.key for entry in absent(needed, listing(self.target, self.digest))}
        landing = Landing(self.target, self.digest)
        waiting = landing.waiting()
        to_fetch = [o for o in needed if o.key in missing and waiting.get(o.key) != o.size]
        landed: list[Object] = []
        self.progress.start("pull", sum(entry.size for entry in needed))

        def fetch(entry: Object) -> None:
            if entry.key in missing or not self._is_sound(entry):
                if not landing.has(entry):
                    landing.put(entry, self._read(entry))
                    self.add(entry)
                landed.append(entry)
            self.progress.advance(entry.size)

        total, before = sum(entry.size for entry in to_fetch), self.bytes
        with space_for(self.target.root, lambda: max(0, total - (self.bytes - before))):
            each(needed, fetch, jobs)
            landing.admit(landed)
        landing.prune()

    def _read(self, entry: Object) -> bytes:
        try:
            return read_object(self.source, self.digest, entry)
        except errors.CorruptError as error:
            # Another pull would bring the same bytes.
            error.hint = f"it is damaged in {self.source.url}, whose owner can verify it and push it again"
            error.facts.pop("artifact", None)
            raise

    def _is_sound(self, entry: Object) -> bool:
        try:
            data = self.target.get(artifact_prefix(self.digest) + entry.key, max_bytes=entry.size)
        except errors.NotFoundError:
            return False
        return matches(data, entry)
