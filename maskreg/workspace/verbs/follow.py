"""Follow: keep a model in memory, or a folder, at what a run publishes."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from maskreg.closing import Closing
from maskreg.digest import Digest
from maskreg.errors import MaskregError, UsageError
from maskreg.extras import requiring
from maskreg.live.alone import Alone
from maskreg.ref import Card, Ref
from maskreg.registry.chains import Chains
from maskreg.registry.registry import Resolved
from maskreg.store.base import REPLICA
from maskreg.update.verified import RecordedSide
from maskreg.workspace.run import Brought, Run, own_name
from maskreg.workspace.sync_event import SyncEvent, counts_of
from maskreg.workspace.workspace import ArtifactLike, Workspace, split_options

if TYPE_CHECKING:
    import torch

    from maskreg.live.processes import Processes

T = TypeVar("T")

WAIT_S = 30.0
"""How long one request to a service waits for a tag to move, in seconds: proxies end connections that are silent."""

LISTED_S = 60.0
"""How long only the next entry of a tag's log is asked for, in seconds; then the log is listed again."""

EVERY_S = 5.0
"""How often a tag is looked at, in seconds, where nothing else is said."""


@dataclass(frozen=True, kw_only=True)
class Followed(SyncEvent):
    """Weights that were brought to where a tag points.

    Attributes:
        root: their identity.
        links: how many artifacts were applied; 0 where the weights were there already.
        out: the checkpoint; None for a model in memory.
    """

    root: str
    links: int
    card: Card
    out: Path | None = None


class Weights(ABC):
    """Weights that follow a tag.

    Attributes:
        root: the identity of the weights; empty until it is known.
        out: the checkpoint that holds them; None in memory.
        processes: all that hold the weights together.
    """

    root = ""
    out: Path | None = None
    processes: Processes | Alone = Alone()

    @abstractmethod
    def stage(self, run: Run, head: Digest, root: str) -> tuple[Brought, Callable[[], None]]:
        """Work out what links to an artifact make of the weights, which can be in use.

        Returns the links, and what brings the weights to this root, all of them or none, and quickly.
        """

    def close(self) -> None:
        """Let go of what is held."""
        return


class Follower(Closing):
    """Brings weights to where a tag points, whenever it has moved. A context manager.

    :meth:`fetch` asks, transfers, verifies and decodes, and only reads the weights: any thread can call it while they
    are in use. :meth:`apply` writes what changes, and is for a moment at which no reader uses them. :meth:`step` is
    both.

    Attributes:
        every_s: seconds between two looks.
        replica: what a service that has the tag shows this follower as.
    """

    def __init__(self, weights: Weights, run: Run, *, every_s: float = EVERY_S, replica: str | None = None) -> None:
        """Decide what to follow; nothing is asked yet.

        Args:
            weights: what follows.
            run: what is followed; both are closed at the end.
            every_s: seconds between two looks.
            replica: what a service shows this follower as; by default the name of the machine and the process id.

        Raises:
            UsageError: a negative time, or a replica's name that is not clean.
        """
        if not every_s >= 0:  # a NaN too
            raise UsageError(f"every_s={every_s}: seconds between two looks cannot be negative")
        self.every_s = every_s
        if replica is not None and not REPLICA.fullmatch(replica):
            raise UsageError(f"replica={replica!r}: pass up to 100 letters, digits, dots, colons, _ and -")
        self.replica = replica or own_name()
        self.ref, self._run, self._weights = run.ref, run, weights
        self._lock = threading.Lock()
        self._looked = -float("inf")
        self._seen: tuple[float, Resolved] | None = None  # when the log was listed, and its end
        self._settled: Digest | None = None  # what the tag points to, once there is nothing left to do about it
        self._served: Digest | None = None  # the version that the weights are at, once it is known
        self._waiting: tuple[Followed, Callable[[], None]] | None = None  # what is staged, and what writes it

    def step(self) -> Followed | None:
        """Look whether the tag has moved, if it is time, and bring the weights there; None where nothing changed."""
        if self._agreed(time.monotonic() - self._looked >= self.every_s):
            self.fetch()
        return self.apply()

    def fetch(self) -> bool:
        """Look at the tag now, bring the links on the way there, and stage what they change together.

        Returns:
            Whether there is something to apply.

        Raises:
            WrongCheckpointError: a model in memory is not what it was.
            MissingLinkError: no way is whole; a later look can find one.
            NotOnChainError: no way begins at these weights.
            BrokenChainError: links do not follow one another.
        """
        with self._lock:
            return self._fetched()

    def _fetched(self) -> bool:
        self._looked, self._settled = time.monotonic(), None
        head, card = self._head()
        if self._waiting is not None and self._waiting[0].digest == head:
            return True
        # A process that cannot read the link must not leave the others waiting.
        root = self._weights.processes.together(lambda: self._run.chains.link(head).after)
        self._waiting = None
        if self._weights.root == root:
            self._settled = self._served = head
            return False
        try:
            brought, commit = self._weights.stage(self._run, head, root)
        except MaskregError:
            self._run.chains.forget()  # a link can have expired
            raise
        event = Followed(
            ref=self.ref,
            digest=head,
            bytes=brought.size,
            seconds={"fetch": brought.at - self._looked, "stage": time.monotonic() - brought.at},
            **counts_of(artifact for artifact, _ in brought.artifacts),
            root=root,
            links=len(brought.artifacts),
            card=card,
            out=self._weights.out,
        )
        self._waiting = event, commit
        return True

    def apply(self) -> Followed | None:
        """Write what :meth:`fetch` staged, if there is something; never waits for it.

        Raises:
            WrongCheckpointError: a model in memory is not what it was; nothing was changed.
        """
        # One that is at work on another thread has nothing to apply yet.
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._applied()
        finally:
            self._lock.release()

    def _applied(self) -> Followed | None:
        if self._waiting is None:
            return None
        (event, commit), self._waiting = self._waiting, None
        begun = time.monotonic()
        commit()
        seconds = {**event.seconds, "apply": time.monotonic() - begun}
        self._settled = self._served = event.digest
        self._run.clear()
        return replace(event, seconds=seconds, at=datetime.now(UTC)).log()

    def wait(self, timeout_s: float | None = None) -> Followed | None:
        """Look again and again until the weights have followed; None when the time is over.

        Args:
            timeout_s: how long at most, in seconds.
        """
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while (followed := self.step()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self.pause(left)
        return followed

    def pause(self, timeout_s: float = WAIT_S) -> None:
        """Wait until it is time for the next :meth:`step`: on a service until the tag moves, elsewhere ``every_s``.

        A service says so within a fifth of a second, and is asked once in half a minute.

        Args:
            timeout_s: how long at most, in seconds.
        """
        service = self._run.service
        if service is not None and self._served is not None:
            try:
                # One that is behind says so too, and is answered at once.
                has_moved = service.wait(self.ref, self._served, min(timeout_s, WAIT_S), self.replica)
                if self._settled is not None:
                    self._looked = -float("inf") if has_moved else self._looked
                    return
            except MaskregError:
                self._settled = None  # the next look says what is wrong
        time.sleep(min(timeout_s, self.every_s or 0.01))

    def close(self) -> None:
        """Close what was opened."""
        self._weights.close()
        self._run.close()

    def _agreed(self, value: T) -> T:
        """What the first of the processes says that hold the weights together."""
        return self._weights.processes.gathered(value)[0]

    def _head(self) -> tuple[Digest, Card]:
        """What the tag points to, as the first process sees it."""
        processes = self._weights.processes

        def look() -> tuple[Digest, Card] | None:
            if processes.rank != processes.ranks[0]:
                return None
            resolved = self._resolved()
            return resolved.digest, resolved.card

        first = self._agreed(processes.together(look))
        assert first is not None  # it looked, or all failed together
        return first

    def _resolved(self) -> Resolved:
        """What the tag points to. While it has not moved, that takes one small request."""
        registry = self._run.registry
        if self._seen is not None:
            at, resolved = self._seen
            is_recent = time.monotonic() - at < LISTED_S
            if is_recent and resolved.entry and registry.refs.peek(self.ref, resolved.entry.n + 1) is None:
                return resolved
        self._seen = time.monotonic(), registry.resolve(self.ref)
        return self._seen[1]


class TagOptions(TypedDict, total=False):
    """Where a tag is.

    Attributes:
        remote: where the tag is; by default the default remote, or the local registry where there is none.
    """

    remote: str | None
    workspace: Workspace | None


class FollowOptions(TagOptions, total=False):
    """Where a tag is, and how often it is looked at.

    Attributes:
        every_s: seconds between two looks at the tag; 5 by default.
        replica: what a service shows this follower as; by default the name of the machine and the process id.
    """

    every_s: float
    replica: str | None


def following(weights_of: Callable[[Run], Weights], ref: str | Ref, options: FollowOptions) -> Follower:
    """Let weights follow a tag; where that fails, all is closed."""
    where, how = split_options(options, TagOptions, FollowOptions)
    with ExitStack() as failed:
        run = failed.enter_context(Run(ref, **where))
        weights = weights_of(run)
        failed.callback(weights.close)
        follower = Follower(weights, run, **how)
        failed.pop_all()
    return follower


def follow(
    model: torch.nn.Module | Mapping[str, torch.Tensor],
    ref: str | Ref,
    *,
    at: ArtifactLike | None = None,
    jobs: int | None = None,
    folder: str | Path | None = None,
    **options: Unpack[FollowOptions],
) -> Follower:
    """Keep a model in memory at what a run publishes under a tag: it is always exactly what some link gave.

    It changes in place, and only within :meth:`Follower.step` or :meth:`Follower.apply`: call these between two
    batches. A change that is staged takes 8 bytes for each weight that moves.

    Args:
        model: a module or a state dict that is the source of the chain, or what any of its links gives.
        at: the artifact whose target the model is, which the next link checks. Left out, the model is hashed; one that
            is sharded over processes is taken for the source of the chain.
        folder: where processes of this machine that follow the same run share what they stage, such as a folder in
            ``/dev/shm``: one decodes, the others check its work against the links. For models on the CPU that each
            process holds whole; others do without. It is made for the user alone, and refused if others can write to
            it, which is found when something is staged.

    Raises:
        UsageError: not a model, or a pinned reference.
    """
    return following(
        lambda run: _Model(model, None if at is None else run.space.find(at).digest, jobs, folder), ref, options
    )


class _Model(Weights):
    """A model in memory."""

    def __init__(self, model: Any, at: Digest | None, jobs: int | None, folder: str | Path | None) -> None:
        with requiring("following with a model in memory"):
            import torch

            from maskreg.live.processes import Processes
            from maskreg.live.state import is_sharded

        if not isinstance(model, torch.nn.Module | Mapping):
            raise UsageError(f"{type(model).__name__} was given; pass a model: a torch module or a state dict")
        self._model, self._at, self._jobs = model, at, jobs
        self._folder = None if folder is None else Path(folder)
        if is_sharded(model):
            self.processes = Processes(None, torch.device("cpu"))

    def stage(self, run: Run, head: Digest, root: str) -> tuple[Brought, Callable[[], None]]:
        from maskreg.flow.apply.in_memory import stage
        from maskreg.update.delta import Delta

        start, brought = self.processes.together(lambda: self._brought(run, head))
        deltas = [(artifact, revert) for artifact, revert in brought.artifacts]

        def opened() -> list[Delta]:
            return [Delta(artifact, revert=revert) for artifact, revert in deltas]

        staged = stage(self._model, opened, jobs=self._jobs, folder=self._folder) if deltas else None
        self.root = start

        def commit() -> None:
            if staged is not None:
                staged.commit()
            self.root = root

        return brought, commit

    def _brought(self, run: Run, head: Digest) -> tuple[str, Brought]:
        """The identity of the weights as they are, and the links from there."""
        start = self.root or self._start(run.chains, head)
        return start, run.bring(head, start)

    def _start(self, chains: Chains, head: Digest) -> str:
        if self._at is not None:
            return chains.link(self._at).after
        if len(self.processes.ranks) > 1:
            # Every leaf is checked before the first weight is written, so what is not the source is refused.
            return [*chains.below(head)][-1].before
        from maskreg.flow.chain import root_of
        from maskreg.live.state import ModelState

        expected = RecordedSide(chains.artifact(head), "target").tensors
        return root_of(ModelState(self._model, expected, allow_surplus=True), jobs=self._jobs)
