"""Publish: what a training run has become, again and again, each time as a link that stands on the one before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from maskreg.artifact.manifest import LINK_RECIPE, Link
from maskreg.closing import Closing
from maskreg.digest import Digest
from maskreg.errors import BrokenChainError, MissingLinkError, NotFoundError, NotOnChainError, TryAgainError, UsageError
from maskreg.extras import requiring
from maskreg.flow.chain import Chained, Snapshot, root_of
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.chains import Chains
from maskreg.registry.pull import bring
from maskreg.registry.push import Pushed
from maskreg.update.verified import RecordedSide
from maskreg.workspace.sources import sources
from maskreg.workspace.storing import Naming, Stored, remember
from maskreg.workspace.verbs.extract import CardOptions, parted
from maskreg.workspace.verbs.pull import pull
from maskreg.workspace.verbs.push import push
from maskreg.workspace.workspace import CheckpointLike, Workspace, as_name

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from maskreg.checkpoint import Checkpoint


WeightsLike: TypeAlias = "torch.nn.Module | Mapping[str, torch.Tensor] | str | Path | Checkpoint"
"""A model, its state dict, or a checkpoint."""


@dataclass(frozen=True)
class Published(Stored):
    """Weights that were published.

    Attributes:
        moved: whether any weight differs from what was published before; without, nothing is published.
        pushed: what was sent to the remote; None without one.
    """

    moved: bool = True
    pushed: Pushed | None = None


class Publisher(Closing):
    """Publishes the weights of a run, each time as a link of one chain.

    It holds what was published last in memory, in 16 bits, since the next link is coded against it. A run that starts
    again makes it anew from the source and the links. A context manager; leaving it closes what it opened.

    Attributes:
        ref: the tag that every link moves.
    """

    def __init__(
        self,
        onto: str | Ref,
        *,
        source: CheckpointLike | None = None,
        remote: str | None = None,
        reversible: bool = False,
        parts: tuple[str, ...] = ("delta",),
        jobs: int | None = None,
        workspace: Workspace | None = None,
        **card: Unpack[CardOptions],
    ) -> None:
        """Decide where to publish; nothing is read yet.

        Args:
            onto: ``[project/]name[:tag]``: the first link makes it, every further one moves it.
            source: the checkpoint that training began from, or one that a link gave; without one it is looked for
                where this machine has seen it.
            remote: where to push every link; without one they stay in the local registry.
            reversible: readers can go back from every link.
            parts: what is pushed; readers need ``delta``, and ``reverse`` to go back.

        Raises:
            UsageError: a name with a digest.
        """
        self.ref = as_name(onto)
        self._source = source
        self._remote = remote
        self._card, _ = parted(card)
        self._options: dict[str, Any] = {"reversible": reversible, "jobs": jobs}
        self._parts = (*parts, *(["reverse"] if reversible and "reverse" not in parts else []))
        self._open = ExitStack()
        self._space = workspace or self._open.enter_context(Workspace())

    def prepare(self) -> None:
        """Read what the next link will be coded against now, and not at the first :meth:`publish`."""
        self._join()
        head = self._space.local.head(self.ref)
        self._latest.at(head.digest if head is not None else None)

    def publish(self, weights: WeightsLike, *, meta: Mapping[str, str] | None = None) -> Published:
        """Publish the weights as they are now. They must not change before this returns.

        A model that is sharded over processes is published by :meth:`publish_sharded`.

        Args:
            weights: a model, its state dict, or a checkpoint; wider weights than the source's are cast to bf16.
            meta: metadata of this link, such as ``{"step": "40"}``.

        Raises:
            WrongCheckpointError: the weights are of another model than the source.
            BrokenChainError: an earlier link gives the same weights.
            ConflictError: another writer moved the tag; the link is kept without a name, and the next one stands on
                theirs.
            TryAgainError: the weights changed while they were read; nothing was published.
            NotFoundError: the source was not named, and is not known here.
        """
        return self._published(weights, meta)

    def publish_sharded(
        self, model: torch.nn.Module | Mapping[str, torch.Tensor], *, meta: Mapping[str, str] | None = None
    ) -> Published | None:
        """Publish a model that is sharded over processes (DTensors: FSDP2, HSDP, tensor parallel); called by all.

        Parameter by parameter, the first process copies the whole to its host memory, and publishes. No process has
        the whole model on its device. All fail together.

        Args:
            model: a module or its state dict.
            meta: metadata of this link.

        Returns:
            What was published, in the first process; None in the others.
        """
        with requiring("publishing a model in memory"):
            import torch

            from maskreg.live.processes import Processes, whole_state
        processes = Processes(None, torch.device("cpu"))
        whole = processes.together(lambda: whole_state(model, processes))
        return processes.together(lambda: None if whole is None else self._published(model, meta, whole))

    def _published(
        self,
        weights: WeightsLike,
        meta: Mapping[str, str] | None,
        tensors: Mapping[str, torch.Tensor] | None = None,
    ) -> Published:
        from maskreg.flow.extract.extraction import extract

        space = self._space
        self._join()
        # The links of a run are what its readers wait for: the tag moves, however many follow it.
        naming = Naming(space, self.ref, careful=False)
        head = naming.head.digest if naming.head is not None else None
        snapshot = self._latest.at(head)
        with self._target(weights, snapshot, tensors) as target:
            parents, recipe = ((head,), LINK_RECIPE) if head is not None else ((), None)
            extracted = extract(snapshot, target, space.root, parents=parents, recipe=recipe, **self._options)
            link = Link(extracted.digest, space.local.artifact(extracted.digest).manifest)
            if head is not None and link.after == self._latest.root:
                space.note(f"nothing moved since {head.short}, so no link was published")
                assert naming.head is not None
                return Published(self.ref, space.local.artifact(head), naming.head.card, moved=False)
            self._latest.check(link, head)
            self._latest.take(target, link)
        card = replace(self._card, meta={**self._card.meta, **(meta or {})}).checked()
        stored = naming.store(extracted.digest, card, extracted.notes)
        self._latest.add(link)
        pushed = None
        if self._remote is not None:
            pushed = push(self.ref, remote=self._remote, parts=self._parts, workspace=space)
        return Published(**vars(stored), pushed=pushed)

    def close(self) -> None:
        """Free the weights that are held, and close what was opened."""
        self._open.close()

    @cached_property
    def _latest(self) -> LatestWeights:
        remote = self._space.remote(self._remote) if self._remote is not None else None
        latest = LatestWeights(self._space, self.ref, self._source, remote)
        self._open.callback(latest.drop)
        return latest

    def _join(self) -> None:
        # A run that goes on elsewhere stands on what the remote has.
        head = self._space.local.head(self.ref)
        if self._remote is None or (head is not None and head.digest is not None):
            return
        try:
            pull(self.ref, remote=self._remote, parts=["delta"], workspace=self._space)
        except NotFoundError:
            return

    @contextmanager
    def _target(
        self, weights: WeightsLike, snapshot: Snapshot, tensors: Mapping[str, torch.Tensor] | None
    ) -> Iterator[Checkpoint]:
        # Asked by its method: where torch is not installed, nothing is a module.
        if isinstance(weights, Mapping) or hasattr(weights, "state_dict"):
            with requiring("publishing a model in memory"):
                from maskreg.live.state import ModelState
            files = snapshot.small_files()
            yield ModelState(weights, snapshot.tensors, files, tensors=tensors)  # type: ignore[arg-type]
            return
        with self._space.checkpoint(weights, side="target") as checkpoint:
            yield checkpoint


def publish(
    weights: WeightsLike,
    onto: str | Ref,
    *,
    source: CheckpointLike | None = None,
    remote: str | None = None,
    meta: Mapping[str, str] | None = None,
    workspace: Workspace | None = None,
    **options: Any,
) -> Published:
    """Publish weights once, as a link that stands on what a tag points to. In a loop, use :class:`Publisher`.

    Args:
        weights: a model, its state dict, or a checkpoint.
        onto: the tag; made when there is none.
        source: the checkpoint that training began from, or one that a link gave.
        remote: where to push the link; without one it stays in the local registry.
        meta: metadata of this link, such as ``{"step": "40"}``.
        options: as :class:`Publisher` takes them.
    """
    with Publisher(onto, source=source, remote=remote, workspace=workspace, **options) as publisher:
        return publisher.publish(weights, meta=meta)


class LatestWeights:
    """The weights that a tag points to, held in memory. The next link is coded against them.

    Attributes:
        root: their identity; empty while nothing is held, or not all of it.
    """

    def __init__(self, space: Workspace, ref: Ref, source: CheckpointLike | None, remote: Registry | None) -> None:
        """Nothing is read yet."""
        self.root = ""
        self._space, self._ref, self._source, self._remote = space, ref, source, remote
        self._chains = Chains([space.local, *([remote] if remote is not None else [])])
        self._snapshot: Snapshot | None = None
        # By root, which link says that the chain was in this state; read once for each head.
        self._states: dict[str, str] = {}
        self._states_head: Digest | None = None

    def at(self, head: Digest | None) -> Snapshot:
        """The weights that an artifact gives, or the weights of the source where there is none yet."""
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
        """Hold the weights that a new link gives."""
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
        """Refuse a link that does not begin at the weights that are held, or ends where the chain has been."""
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
                (bring(self._space.local, self._remote, step.link.digest, parts=[step.part])[0], step.revert)
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
            for attempt in sources(self._space, first.manifest.source):
                with attempt as checkpoint:
                    snapshot, path = Snapshot(checkpoint), checkpoint.path
        else:
            raise UsageError(
                f"there is no {self._ref} yet, so its source has to be named", hint="pass source=CHECKPOINT"
            )
        self.drop()
        self.root = root_of(snapshot)
        self._snapshot = snapshot
        remember(self._space, self.root, path)
        return snapshot
