"""What stays of a run that publishes for weeks: anchors, the versions that are kept, and the newest links."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from maskreg.artifact.manifest import stands_on
from maskreg.errors import UsageError
from maskreg.ref import DEFAULT_TAG
from maskreg.registry.expiry import consent, version_of
from maskreg.registry.transfer import is_tracked
from maskreg.store.reflog import RefEntry
from maskreg.workspace.storing import Naming
from maskreg.workspace.verbs.push import push
from maskreg.workspace.verbs.squash import squash
from maskreg.workspace.workspace import CheckpointLike, Workspace


@dataclass(frozen=True)
class Retention:
    """What a publisher keeps.

    Attributes:
        anchor_every: after so many links, the run is squashed into an anchor, an artifact that applies to the source.
            The next link stands on it, so a new or late reader needs an anchor and the links since. The first process
            makes it, from the source and the links.
        keep_links: with each anchor, what the tag has left behind is deleted, here and on the remote, but for so many
            of the newest versions. Without it, garbage collection deletes it a week later.
        keep_every: each version whose number is a multiple stays, as an anchor under the tag ``v<number>``.
        lease_s: seconds for which a link stays after the tag has left it, so that its readers can go on.
    """

    anchor_every: int
    keep_links: int | None = None
    keep_every: int | None = None
    lease_s: int = 600

    def __post_init__(self) -> None:
        for name, number in vars(self).items():
            least = 0 if name == "lease_s" else 1
            if number is not None and not least <= number < 10**9:
                raise UsageError(f"{name}={number}: pass {least} or more")

    def meta(self, head: RefEntry | None) -> dict[str, str]:
        """What the card of the next version says beside its caller's metadata."""
        return consent(version_of(head) + 1, self.lease_s)

    def is_due(self, head: RefEntry, chain: int) -> bool:
        """Whether the latest version needs an anchor; ``chain``: artifacts from it down to the first of its chain."""
        version = version_of(head)
        is_kept = self.keep_every is not None and version % self.keep_every == 0
        # One that was killed before its anchor leaves the chain longer than it is to be.
        return chain > 1 and (is_kept or version % self.anchor_every == 0 or chain > self.anchor_every + 1)


def keep_version(
    space: Workspace,
    head: RefEntry,
    every: int,
    source: CheckpointLike | None,
    remote: str | None,
    parts: tuple[str, ...],
) -> None:
    """Give the latest version that is to be kept a tag of its own, which needs no other artifact, unless it has one."""
    number = version_of(head) // every * every
    tag = f"v{number}" if head.ref.tag == DEFAULT_TAG else f"{head.ref.tag}-v{number}"
    ref = head.ref.with_tag(tag)
    if not number or (space.local.head(ref) is not None and (remote is None or is_tracked(space.local, ref))):
        return
    # Each version has two entries at most.
    entries = islice(space.local.refs.back(head), 2 * every)
    entry = next((entry for entry in entries if version_of(entry) == number), None)
    if entry is None or entry.digest is None:
        return
    digest = entry.digest
    if stands_on(space.local.artifact(digest).manifest) is not None:
        digest = squash(entry.ref.pinned(digest), source=source, workspace=space).digest
    Naming(space, ref, careful=False).store(digest, entry.card)
    if remote is not None:
        push(ref, remote=remote, parts=parts, workspace=space)
