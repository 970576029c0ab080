"""Publish: what a training run has become, again and again, each time as a link that stands on the one before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from maskreg.artifact.manifest import LINK_RECIPE, Link
from maskreg.closing import Closing
from maskreg.errors import NotFoundError
from maskreg.extras import requiring
from maskreg.flow.chain import Snapshot
from maskreg.ref import Card, Ref
from maskreg.registry.transfer.push import Pushed
from maskreg.result import plain
from maskreg.workspace.publishing import LatestWeights
from maskreg.workspace.pull import pull
from maskreg.workspace.push import push
from maskreg.workspace.storing import Naming, Stored
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

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        pushed = self.pushed.to_json() if self.pushed else None
        return {**super().to_json(), "moved": plain(self.moved), "pushed": pushed}


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
        family: str = "",
        method: str = "",
        license: str = "",
        description: str = "",
        reversible: bool = False,
        parts: tuple[str, ...] = ("delta",),
        jobs: int | None = None,
        workspace: Workspace | None = None,
    ) -> None:
        """Decide where to publish; nothing is read yet.

        Args:
            onto: ``[project/]name[:tag]``: the first link makes it, every further one moves it.
            source: the checkpoint that training began from, or one that a link gave; without one it is looked for
                where this machine has seen it.
            remote: where to push every link; without one they stay in the local registry.
            family: model family, such as ``qwen3-8b``.
            method: how the run trains: ``opd``, ``rlvr``, ``sft`` or another word.
            license: SPDX identifier.
            description: one paragraph for people.
            reversible: readers can go back from every link.
            parts: what is pushed; readers need ``delta``, and ``reverse`` to go back.
            jobs: threads; by default one per CPU, at most 16.
            workspace: where links are stored; by default what the settings say.

        Raises:
            BadRefError: a name that does not follow the grammar.
            UsageError: a name with a digest.
        """
        self.ref = as_name(onto)
        self._source = source
        self._remote = remote
        self._card = Card(family, method, license, description).checked()
        self._options: dict[str, Any] = {"reversible": reversible, "jobs": jobs}
        self._parts = (*parts, *(["reverse"] if reversible and "reverse" not in parts else []))
        self._open = ExitStack()
        self._space = workspace or self._open.enter_context(Workspace())

    def prepare(self) -> None:
        """Read what the next link will be coded against now, and not at the first :meth:`publish`.

        Raises:
            MaskregError: as :meth:`publish`.
        """
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
            UnavailableError: the remote does not answer; the link is in the local registry, and the next one that
                reaches the remote takes it along.
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

        Raises:
            MaskregError: as :meth:`publish`, in all processes.
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
        card = self._card_with(meta)
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

    def _card_with(self, meta: Mapping[str, str] | None) -> Card:
        card = self._card
        return Card(card.family, card.method, card.license, card.description, dict(meta or {})).checked()


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
        workspace: where links are stored; by default what the settings say.
        options: as :class:`Publisher` takes them.

    Raises:
        MaskregError: as :meth:`Publisher.publish`.
    """
    with Publisher(onto, source=source, remote=remote, workspace=workspace, **options) as publisher:
        return publisher.publish(weights, meta=meta)
