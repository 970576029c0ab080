"""Push: the objects that the remote lacks, each hashed before it is sent, then the manifest, and the name last."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from maskreg.artifact.layout import artifact_prefix
from maskreg.artifact.presence import absent, listing, objects_of, read_manifest, read_object, whole_parts
from maskreg.digest import Digest
from maskreg.errors import PartAbsentError
from maskreg.parallel import each
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry.registry import Registry
from maskreg.registry.settle import Settling
from maskreg.registry.transfer import Copying, check_tracked, newer_readme, space_for, track
from maskreg.result import Result
from maskreg.settings import DEFAULT_JOBS
from maskreg.signature import require_checking
from maskreg.store.chain import check_movable

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Object


@dataclass(frozen=True)
class Pushed(Result):
    """An artifact that was published.

    Attributes:
        ref: its name on the remote.
        digest: the artifact.
        remote: name of the remote.
        url: where the remote is, without credentials.
        parts: the parts that were sent, or were there already.
        sent_objects: objects that were transferred.
        sent_bytes: their size.
        reused_bytes: size of the objects that the remote had already.
        immutable: whether the name must never point to another artifact.
        was: the other artifact that the name pointed to on the remote until it moved; None when it did not move.
        was_by: who set the name to that artifact; empty when it did not move.
        was_at: when, by that writer's clock (aware, UTC); None when it did not move.
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
    was: Digest | None = None
    was_by: str = ""
    was_at: datetime | None = None


def push(
    local: Registry,
    remote: Registry,
    ref: Ref,
    *,
    tag: str | None = None,
    parts: Collection[str] | None = None,
    force: bool = False,
    progress: Progress = SILENT,
    jobs: int = DEFAULT_JOBS,
) -> Pushed:
    """Publish an artifact: the objects that the remote lacks, the manifest, then the name.

    A README that was written on the remote stays, unless the local one is newer.

    Args:
        local: where it is; only parts that are completely present are pushed.
        remote: where it goes.
        ref: what to publish.
        tag: the remote's tag; the tag in ``ref`` when left out.
        parts: which of the parts that are here; all when left out.
        force: move the remote's tag even from an artifact that the local registry did not know it pointed to.
        progress: progress callback, in bytes transferred.
        jobs: objects transferred at the same time; as many are in memory.
    """
    resolved = local.resolve(ref)
    remote_ref = ref.with_tag(ref.tag if tag is None else tag)
    after = remote.head(remote_ref)
    digest = resolved.digest
    if (service := remote.store.service) is None:
        remote.trust.check_signs(ref.project)
    elif service.signs:
        # The project might have no key yet; what it gets with this push could not be read back.
        require_checking()
    check_movable(after, digest, hint="choose another tag", options={"tag": None})
    if not force:
        check_tracked((local, remote), remote_ref, digest, after)
    data, manifest = read_manifest(local.store, digest)
    whole = whole_parts(local.store, digest, manifest, listing(local.store, digest))
    sending = whole if parts is None else whole & frozenset(parts)
    if not sending:
        raise PartAbsentError(f"no part of {ref} is in {local.name}", unpulled=ref)
    needed = objects_of(manifest, sending)
    remote.ensure_uuid()
    sent = _Sent(local.store, remote.store, digest, progress, manifest=data)
    # The mark goes with the tag, and not to another one, such as latest.
    is_fixed = resolved.entry is not None and resolved.entry.immutable and remote_ref.tag == ref.tag
    before = after.digest if after is not None else None
    with Settling(remote.store, digest, data, needed, lambda: sent.bring(needed, jobs), progress):
        track(local, remote, remote_ref, digest, before or digest)
        card = replace(resolved.card, readme=newer_readme(remote, resolved.card.readme, after))
        entry = remote.append(remote_ref, digest, card=card, after=after, action="push", immutable=is_fixed or None)
    track(local, remote, remote_ref, digest)
    reused = max(0, sum(entry.size for entry in needed) - sent.bytes)
    figures = remote_ref, digest, remote.name, remote.url, sending, sent.count, sent.bytes, reused
    if after is None or after.digest in (None, digest):
        return Pushed(*figures, immutable=entry.immutable)
    return Pushed(*figures, immutable=entry.immutable, was=after.digest, was_by=after.by, was_at=after.at)


@dataclass
class _Sent(Copying):
    manifest: bytes = b""

    def bring(self, needed: list[Object], jobs: int) -> None:
        missing = absent(needed, listing(self.target, self.digest))
        if missing and self.target.service is not None:
            self.target.service.announce(self.digest, self.manifest)
        total, before = sum(entry.size for entry in missing), self.bytes
        self.progress.start("push", total)
        if (files := self.target.files) is None:
            each(missing, self._send, jobs)
            return
        with space_for(files.root, lambda: total - (self.bytes - before)):
            each(missing, self._send, jobs)

    def _send(self, entry: Object) -> None:
        data = read_object(self.source, self.digest, entry)
        self.target.put(artifact_prefix(self.digest) + entry.key, data)
        self.add(entry)
        self.progress.advance(entry.size)
