"""What a publisher stands on: the weights that its tag points to, in memory, and the states that the chain was in."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from maskreg.artifact.manifest import Link
from maskreg.digest import Digest
from maskreg.errors import BrokenChainError, MissingLinkError, NotOnChainError, TryAgainError, UsageError
from maskreg.flow.chain import Chained, Snapshot, root_of
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.chains import Chains
from maskreg.registry.transfer.pull import bring
from maskreg.update.verified import RecordedSide
from maskreg.workspace.sources import with_source
from maskreg.workspace.storing import remember
from maskreg.workspace.workspace import CheckpointLike, Workspace

if TYPE_CHECKING:
    from maskreg.checkpoint import Checkpoint


class LatestWeights:
    """The weights that a tag points to, held in memory. The next link is coded against them.

    Attributes:
        root: their identity; empty while nothing is held, or not all of it.
    """

    def __init__(self, space: Workspace, ref: Ref, source: CheckpointLike | None, remote: Registry | None) -> None:
        """Nothing is read yet.

        Args:
            space: where links are stored.
            ref: the tag.
            source: the checkpoint that the chain began from, or one that a link gave; None to look for it.
            remote: where links are too.
        """
        self.root = ""
        self._space, self._ref, self._source, self._remote = space, ref, source, remote
        self._chains = Chains([space.local, *([remote] if remote is not None else [])])
        self._snapshot: Snapshot | None = None
        # By root, which link says that the chain was in this state; read once for each head.
        self._states: dict[str, str] = {}
        self._states_head: Digest | None = None

    def at(self, head: Digest | None) -> Snapshot:
        """The weights that an artifact gives, or the weights of the source where there is none yet.

        Raises:
            UsageError: there is none, and the source was not named.
            NotFoundError: the source was not named, and is not known here.
            DataError: no links lead from the source to the artifact, or one is damaged.
        """
        if head is None:
            return self._snapshot or self._begin(None)
        if self._snapshot is None:
            return self._moved_to(head, self._begin(head))
        try:
            return self._moved_to(head, self._snapshot)
        except (NotOnChainError, MissingLinkError):
            # The tag was moved back.
            return self._moved_to(head, self._begin(head))

    def take(self, target: Checkpoint, link: Link) -> None:
        """Hold the weights that a new link gives.

        Raises:
            TryAgainError: they are not those that the link records.
        """
        assert self._snapshot is not None
        self.root = ""
        self._snapshot.take(target)
        if not RecordedSide(self._space.local.artifact(link.digest), "target").matches(self._snapshot):
            self.drop()
            raise TryAgainError(
                "the weights changed while they were read; nothing was published",
                hint="publish between two optimizer steps",
            )
        self.root = link.after

    def drop(self) -> None:
        """Free what is held."""
        if self._snapshot is not None:
            self._snapshot.close()
        self._snapshot, self.root = None, ""

    def check(self, link: Link, head: Digest | None) -> None:
        """Refuse a link that does not begin at the weights that are held, or ends where the chain has been.

        Args:
            link: the new one.
            head: what it stands on.

        Raises:
            BrokenChainError: it must not be published.
        """
        if link.before != self.root:
            self.drop()
            raise BrokenChainError("the weights that were published last changed in memory; nothing was published")
        if head is None:
            return
        if earlier := self._earlier(head).get(link.after):
            raise BrokenChainError(
                f"these are the weights that {earlier}, so {link.digest.short} would close a circle; it was not "
                "published",
                hint="to return to what a link gives, move the tag back",
                circle=self._ref,
            )

    def add(self, link: Link) -> None:
        """Note the state that a link gives, now that the tag points to it."""
        if self._states_head is not None and self._states_head == link.below:
            self._states[link.after], self._states_head = f"{link.digest.short} gives", link.digest

    def _earlier(self, head: Digest) -> dict[str, str]:
        """Every state that the chain has been in, by root, and which link says so."""
        if self._states_head != head:
            states: dict[str, str] = {}
            # Links below one that was collected are left out: no reader gets there.
            with suppress(MissingLinkError):
                for link in self._chains.below(head):
                    states[link.after] = f"{link.digest.short} gives"
                    if link.below is None:
                        states[link.before] = f"{link.digest.short} applies to"
            self._states, self._states_head = states, head
            self._chains.forget()
        return self._states

    def _moved_to(self, head: Digest, snapshot: Snapshot) -> Snapshot:
        steps = self._chains.way(self._ref, head, self.root)
        if steps:
            artifacts = [
                (bring(self._space.local, self._remote, step.link.digest, parts=[step.part]).artifact, step.revert)
                for step in steps
            ]
            self.root = ""  # until all of it is there
            snapshot.take(Chained(snapshot, artifacts))
            self.root = steps[-1].after
        return snapshot

    def _begin(self, head: Digest | None) -> Snapshot:
        if self._source is not None:
            with self._space.checkpoint(self._source, side="source") as checkpoint:
                snapshot, path = Snapshot(checkpoint), checkpoint.path
        elif head is not None:
            first = [*self._chains.below(head)][-1]
            snapshot, path = with_source(self._space, first.manifest.source, Snapshot)
        else:
            raise UsageError(
                f"there is no {self._ref} yet, so its source has to be named", hint="pass source=CHECKPOINT"
            )
        self.drop()
        self.root = root_of(snapshot)
        self._snapshot = snapshot
        remember(self._space, self.root, path)
        return snapshot
