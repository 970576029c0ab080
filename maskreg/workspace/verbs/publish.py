"""Publish: what a training run has become, again and again, each time as a link that stands on the one before."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from maskreg.artifact.manifest import Link
from maskreg.closing import Closing
from maskreg.digest import Digest
from maskreg.errors import ConflictError, NotFoundError, UnavailableError, UsageError
from maskreg.extras import requiring
from maskreg.live.alone import Alone
from maskreg.ref import Ref
from maskreg.registry.expiry import expire
from maskreg.registry.push import Pushed
from maskreg.registry.transfer import tracked
from maskreg.workspace.latest import LatestWeights, is_model
from maskreg.workspace.storing import Naming, Stored
from maskreg.workspace.sync_event import SyncEvent, counts_of
from maskreg.workspace.verbs.extract import CardOptions, card_of
from maskreg.workspace.verbs.pull import pull
from maskreg.workspace.verbs.push import push
from maskreg.workspace.verbs.retention import Retention, keep_version
from maskreg.workspace.verbs.squash import squash
from maskreg.workspace.workspace import CheckpointLike, Workspace, as_name

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from maskreg.checkpoint import Checkpoint
    from maskreg.flow.publish.publication import Publication
    from maskreg.live.processes import Processes
    from maskreg.live.state import Changes


WeightsLike: TypeAlias = "torch.nn.Module | Mapping[str, torch.Tensor] | str | Path | Checkpoint"
"""A model, its state dict, or a checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Published(Stored):
    """Weights that were published.

    Attributes:
        moved: whether any weight differs from what was published before; without, nothing is published.
        pushed: what was sent to the remote; None without one.
        event: what moved, what was sent and what each phase took.
    """

    event: SyncEvent
    moved: bool = True
    pushed: Pushed | None = None

    @classmethod
    def of(cls, stored: Stored, pushed: Pushed | None, seconds: Mapping[str, float], *, moved: bool) -> Published:
        """Say what was stored and pushed, to the log too."""
        assert stored.ref is not None  # every link moves a tag
        size = pushed.sent_bytes if pushed is not None else stored.size if moved else 0
        counts = counts_of([stored.artifact]) if moved else {}
        event = SyncEvent(ref=stored.ref, digest=stored.digest, bytes=size, seconds=seconds, **counts).log()
        return cls(**vars(stored), event=event, moved=moved, pushed=pushed)


class Publisher(Closing):
    """Publishes the weights of a run, each time as a link of one chain.

    It holds what was published last, the baseline, since the next link is coded against it; where several processes
    hold the model, each holds its part. A run that starts again makes it anew from the source and the links. A
    context manager; leaving it closes what it opened.

    Attributes:
        ref: the tag that every link moves.
    """

    def __init__(
        self,
        onto: str | Ref,
        *,
        source: CheckpointLike | None = None,
        remote: str | None = None,
        parts: tuple[str, ...] = ("delta",),
        baseline: Literal["memory", "disk"] = "memory",
        retention: Retention | None = None,
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
            parts: what links hold, and what of them is pushed; readers need ``delta``, and can go back from a link
                with ``reverse``. A ``mask`` makes a link three times as large, and squashing links gives theirs.
            baseline: where what was published last is held: in memory, or in a file of the local registry that is
                mapped into memory, and removed at the end.
            retention: when to make anchors, and which links expire; without it all stay.

        Raises:
            UsageError: a name with a digest, another place for the baseline, or parts without ``delta``.
        """
        if "delta" not in parts or not {*parts} <= {"mask", "delta", "reverse"}:
            raise UsageError(f"parts={parts!r}: a link needs 'delta', and can have 'mask' and 'reverse'")
        if baseline not in ("memory", "disk"):
            raise UsageError(f"baseline={baseline!r}: pass 'memory' or 'disk'")
        self.ref = as_name(onto)
        self._source, self._remote, self._parts = source, remote, parts
        self._card = card_of(card)
        self._on_disk, self._jobs, self._retention = baseline == "disk", jobs, retention
        self._open = ExitStack()
        self._space = workspace or self._open.enter_context(Workspace())
        self._groups: tuple[Processes, Processes] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="maskreg-publish")
        self._running: Future[Published | None] | None = None
        # What another process stored, and was ended before it was pushed, is pushed too.
        self._is_pushed = self._has_joined = False

    def prepare(self, weights: WeightsLike | None = None) -> None:
        """Read what the next link will be coded against now, and not at the first :meth:`publish`.

        ``weights``: the model, if it is sharded over processes; all of them call it.
        """
        processes, _ = self._processes(weights)
        _, head = self._naming(processes)
        processes.together(lambda: self._latest).prepare(head, weights, processes)

    def publish(
        self,
        weights: WeightsLike,
        *,
        changed: Changes | None = None,
        meta: Mapping[str, str] | None = None,
        async_: bool = False,
        when_busy: Literal["wait", "skip"] = "wait",
    ) -> Published | None:
        """Publish the weights as they are now. They must not change before this returns.

        A model that is sharded over processes (DTensors: FSDP2, HSDP, tensor parallel) is published by all of them
        together: each finds what moved in its own shards and codes its share of the blocks; the first stores the link.
        All fail together.

        Args:
            weights: a model, its state dict, or a checkpoint; wider weights than the source's are cast to bf16.
            changed: ``maskreg.train.changed(optimizer)`` of the masked optimizer that trains the model, for no other
                reader and at every call: what moved of its parameters is looked for there, and not in all of their
                weights. Other tensors, and all of them at the first call or after a failure, are compared whole.
            meta: metadata of this link, such as ``{"step": "40"}``.
            async_: return when it is known what moved; code, store and push it on a thread, beside the next step. An
                error of it is raised by the next call, by :meth:`wait` or by :meth:`close`.
            when_busy: what to do while an earlier publication is still on its way: wait for it, or skip this one.

        Returns:
            What was published. None in all processes but the first, with ``async_``, and where it was skipped.

        Raises:
            WrongCheckpointError, PairMismatchError: the weights are of another model than the source.
            BrokenChainError: an earlier link gives the same weights.
            ConflictError: another writer moved the tag; the link is kept without a name, and the next one stands on
                theirs.
            TryAgainError: the weights changed while they were read; nothing was published.
            NotFoundError: the source was not named, and is not known here.
        """
        if when_busy not in ("wait", "skip"):
            raise UsageError(f"when_busy={when_busy!r}: pass 'wait' or 'skip'")
        if weights is None:
            raise UsageError("no weights were given; pass a model, its state dict, or a checkpoint")
        if changed is not None and not is_model(weights):
            raise UsageError("changed is of a model in memory", hint="pass the model, or leave changed out")
        processes, beside = self._processes(weights)
        busy = self._running is not None and not self._running.done()
        if when_busy == "skip" and any(processes.gathered(busy)):
            return None
        processes.together(self.wait)
        naming, head = self._naming(processes)
        begun = time.monotonic()
        publication = processes.together(lambda: self._latest).moved(head, weights, processes, changed)
        seconds = {"find": time.monotonic() - begun}
        if not async_:
            return self._published(publication, seconds, naming, head, meta, processes)
        self._running = self._thread.submit(self._published, publication, seconds, naming, head, meta, beside)
        return None

    def wait(self) -> Published | None:
        """Wait for what is published beside the training, if anything is; returns it, or raises its error."""
        running, self._running = self._running, None
        return running.result() if running is not None else None

    def close(self) -> None:
        """Wait for what is on its way, free the weights that are held, and close what was opened."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()
            self._open.close()

    def _published(
        self,
        publication: Publication,
        seconds: dict[str, float],
        naming: Naming | None,
        head: Digest | None,
        meta: Mapping[str, str] | None,
        processes: Processes | Alone,
    ) -> Published | None:
        """Code what moved as a link, move the tag to it, and push it; the baseline moves on when the tag has."""
        moved, extracted = head is None or any(processes.gathered(bool(publication.moved))), None
        if moved:
            begun = time.monotonic()
            extracted = publication.link(
                processes,
                self._space.root,
                reversible="reverse" in self._parts,
                masked="mask" in self._parts,
                head=head,
            )
            seconds["code"] = time.monotonic() - begun

        def store() -> tuple[Stored, Link | None] | None:
            if naming is None:
                return None
            if extracted is None:
                return self._unmoved(naming), None
            link = Link(extracted.digest, self._space.local.artifact(extracted.digest).manifest)
            self._latest.check(link, naming.head.digest if naming.head is not None else None)
            consent = {} if self._retention is None else self._retention.meta(naming.head)
            card = replace(self._card, meta={**self._card.meta, **(meta or {}), **consent}).checked()
            stored = naming.store(link.digest, card, extracted.notes)
            self._is_pushed = False
            return stored, link

        made = processes.together(store)
        link = processes.gathered(made and made[1])[0]
        if link is not None:
            processes.together(lambda: self._latest.advance(publication, link))

        def push_stored() -> Published | None:
            return None if made is None else Published.of(made[0], self._pushed(seconds), seconds, moved=moved)

        published = processes.together(push_stored)
        processes.together(lambda: self._settle(naming))
        return published

    def _unmoved(self, naming: Naming) -> Stored:
        assert naming.head is not None and naming.head.digest is not None  # else the first link is made
        head = self._space.local.artifact(naming.head.digest)
        self._space.note(f"nothing moved since {head.digest.short}, so no link was published")
        return Stored(self.ref, head, naming.head.card)

    def _settle(self, published: Naming | None) -> None:
        """Make the anchor that is due, keep the version that is to be kept, and let links expire, in this order."""
        keep, space = self._retention, self._space
        if keep is None or published is None:
            return
        naming = Naming(space, self.ref, careful=False)
        if naming.head is None or naming.head.digest is None:
            return
        is_due = keep.is_due(naming.head, self._latest.length(naming.head.digest))
        if is_due:
            squashed = squash(self.ref.pinned(naming.head.digest), source=self._source, workspace=space)
            try:
                naming.store(squashed.digest, naming.head.card)
            except ConflictError:
                return  # another publisher has moved the tag, and makes the next anchor
            self._is_pushed = False
            self._pushed({})
        head = space.local.live(self.ref)
        if keep.keep_every is not None:
            keep_version(space, head, keep.keep_every, self._source, self._remote, self._parts)
        if is_due and keep.keep_links is not None:
            for registry in (space.local, *([space.remote(self._remote)] if self._remote is not None else [])):
                expire(registry, self.ref, keep.keep_links)

    def _pushed(self, seconds: dict[str, float]) -> Pushed | None:
        """Push the latest link, unless that is done."""
        if self._remote is None or self._is_pushed:
            return None
        begun = time.monotonic()
        try:
            pushed = push(self.ref, remote=self._remote, parts=self._parts, workspace=self._space)
        except ConflictError:
            self._has_joined = False
            raise
        self._is_pushed = True
        seconds["push"] = time.monotonic() - begun
        return pushed

    def _processes(self, weights: WeightsLike | None) -> tuple[Processes | Alone, Processes | Alone]:
        """The processes that publish weights, for this thread and for the one beside it."""
        if weights is None or not is_model(weights):
            return Alone(), Alone()
        with requiring("publishing a model in memory"):
            from maskreg.live.state import is_sharded
        if not is_sharded(weights):  # type: ignore[arg-type]
            return Alone(), Alone()
        if self._groups is None:
            from maskreg.live.processes import own_group

            self._groups = own_group(), own_group()
        return self._groups

    def _naming(self, processes: Processes | Alone) -> tuple[Naming | None, Digest | None]:
        """The tag in the first process, and what it points to."""

        def look() -> Naming | None:
            if processes.rank != processes.ranks[0]:
                return None
            self._join()
            # The links of a run are what its readers wait for: the tag moves, however many follow it.
            return Naming(self._space, self.ref, careful=False)

        naming = processes.together(look)
        head = naming.head.digest if naming is not None and naming.head is not None else None
        return naming, processes.gathered(head)[0]

    @cached_property
    def _latest(self) -> LatestWeights:
        remote = self._space.remote(self._remote) if self._remote is not None else None
        latest = LatestWeights(self._space, self.ref, self._source, remote, on_disk=self._on_disk, jobs=self._jobs)
        self._open.callback(latest.drop)
        return latest

    def _join(self) -> None:
        # A run that goes on elsewhere, or comes back from there, stands on what the remote has.
        local = self._space.local
        head = local.head(self.ref)
        is_here = head is not None and head.digest is not None
        if self._remote is None or (is_here and self._has_joined):
            return
        remote = self._space.remote(self._remote)
        try:
            if not is_here or remote.resolve(self.ref).digest not in tracked(local, remote, self.ref):
                pull(self.ref, remote=self._remote, parts=["delta"], workspace=self._space)
        except NotFoundError:
            pass
        except UnavailableError:
            if not is_here:
                raise
            return
        self._has_joined = True


def publish(
    weights: WeightsLike,
    onto: str | Ref,
    *,
    source: CheckpointLike | None = None,
    remote: str | None = None,
    meta: Mapping[str, str] | None = None,
    workspace: Workspace | None = None,
    **options: Any,
) -> Published | None:
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
