"""Follow: keep a model in memory, or a folder, at what a run publishes."""

from __future__ import annotations

import os
import re
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import finalize

from maskreg.closing import Closing
from maskreg.digest import Digest
from maskreg.errors import (
    MaskregError,
    MissingLinkError,
    NotOnChainError,
    TryAgainError,
    UnavailableError,
    UsageError,
)
from maskreg.extras import requiring
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.chains import Chains, Step
from maskreg.registry.pull import bring
from maskreg.registry.registry import Resolved
from maskreg.store import FileStore
from maskreg.store.base import REPLICA
from maskreg.update.verified import RecordedSide
from maskreg.workspace.sync_event import SyncEvent, counts_of
from maskreg.workspace.workspace import ArtifactLike, Workspace, as_ref, opened

if TYPE_CHECKING:
    import torch

    from maskreg.artifact.reader import Artifact


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


class Weights(Protocol):
    """Weights that follow a tag."""

    def root(self, chains: Chains, head: Digest) -> str:
        """The identity of the weights as they are; asked until it is known."""

    def stage(self, artifacts: Sequence[tuple[Artifact, bool]], root: str) -> Callable[[], None]:
        """Work out what artifacts in order, each with whether it is reverted, make of the weights, which may be in use.

        Returns what brings the weights to this root, all of them or none, and quickly.
        """

    def begin_again(self) -> str | None:
        """The identity of a checkpoint that they can begin again from; None where there is none."""
        return None

    @property
    def out(self) -> Path | None:
        """The checkpoint that holds them; None in memory."""

    def agree(self, value: Any) -> Any:
        """What the first of several processes that hold the weights together says; the value where there is one."""
        return value

    def all(self, value: bool) -> bool:
        """Whether it is so in all of these processes."""
        return value

    def close(self) -> None:
        """Let go of what is held."""
        return


class Follower(Closing):
    """Brings weights to where a tag points, whenever it has moved. A context manager.

    :meth:`fetch` asks, transfers, verifies and decodes, and only reads the weights: any thread may call it while they
    are in use. :meth:`apply` writes what changes, and is for a moment at which no reader uses them. :meth:`step` is
    both.

    Attributes:
        every_s: seconds between two looks.
        replica: what a service that has the tag shows this follower as.
    """

    def __init__(
        self,
        weights: Weights,
        ref: str | Ref,
        *,
        remote: str | None = None,
        every_s: float = EVERY_S,
        safe: Callable[[], bool] | None = None,
        replica: str | None = None,
        workspace: Workspace | None = None,
    ) -> None:
        """Decide what to follow; nothing is asked yet.

        Args:
            weights: what follows.
            ref: the tag.
            every_s: seconds between two looks.
            safe: asked before the weights change; while it says no, links wait.
            replica: what a service shows this follower as; by default the name of the machine and the process id.

        Raises:
            UsageError: a pinned reference, a negative time, or a replica's name that is not clean.
        """
        self.ref = as_ref(ref)
        if self.ref.digest is not None:
            raise UsageError(f"{self.ref} is pinned, so it never moves", hint="leave out the digest")
        if every_s < 0:
            raise UsageError(f"every_s={every_s}: seconds between two looks cannot be negative")
        self.every_s = every_s
        if replica is not None and not REPLICA.fullmatch(replica):
            raise UsageError(f"replica={replica!r}: pass up to 100 letters, digits, dots, colons, _ and -")
        self.replica = replica or own_name()
        self._weights = weights
        self._safe = safe
        self._own = workspace is None
        self._space = workspace or Workspace()
        self._remote = self._space.remote_to_ask(remote)
        self._chains = Chains([self._space.local, *([self._remote] if self._remote is not None else [])])
        self._links = Links(self._space, self._remote)
        self._lock = threading.Lock()
        self._root = ""
        self._looked = -float("inf")
        self._seen: tuple[float, Resolved] | None = None  # when the log was listed, and its end
        self._settled: Digest | None = None  # what the tag points to, once there is nothing left to do about it
        self._served: Digest | None = None  # the version that the weights are at, once it is known
        self._waiting: _Waiting | None = None

    def step(self) -> Followed | None:
        """Look whether the tag has moved, if it is time, and bring the weights there; None where nothing changed."""
        if self._weights.agree(time.monotonic() - self._looked >= self.every_s):
            self.fetch()
        return self.apply()

    def fetch(self) -> bool:
        """Look at the tag now, bring the links on the way there to this machine, and stage what they change.

        Several links are staged as one change.

        Returns:
            Whether there is something to apply.

        Raises:
            WrongCheckpointError: a model in memory is not what it was.
            TryAgainError: the checkpoint in a folder is not what it was; the next look makes it again.
            CorruptError: a link is damaged.
            MissingLinkError: no way is whole; a later look may find one.
            NotOnChainError: no way begins at these weights.
            BrokenChainError: links do not follow one another.
            RolledBackError: the log of the tag went back, or was rewritten.
        """
        with self._lock:
            return self._fetched()

    def _fetched(self) -> bool:
        self._looked, self._settled = time.monotonic(), None
        head, card = self._head()
        if self._waiting is not None and self._waiting.event.digest == head:
            return True
        if self._root and self._chains.link(head).after == self._root:
            self._waiting, self._settled, self._served = None, head, head
            return False
        self._waiting = None
        brought: tuple[list[tuple[Artifact, bool]], int] | None = None
        problem: MaskregError | None = None
        try:
            brought = self._links.bring(self._way(head))
        except MaskregError as error:
            problem = error
            self._chains.forget()  # a link can have expired
        # Where several processes hold the weights, all of them go on, or none.
        if not self._weights.all(brought is not None) or brought is None:
            raise problem or TryAgainError(f"another process could not bring the links of {self.ref}")
        artifacts, size = brought
        fetched = time.monotonic()
        root, start = self._chains.link(head).after, self._root
        self._root = ""  # after an error, the weights say what they are
        commit = self._weights.stage(artifacts, root)
        self._root = start
        event = Followed(
            ref=self.ref,
            digest=head,
            bytes=size,
            seconds={"fetch": fetched - self._looked, "stage": time.monotonic() - fetched},
            **counts_of(artifact for artifact, _ in artifacts),
            root=root,
            links=len(artifacts),
            card=card,
            out=self._weights.out,
        )
        self._waiting = _Waiting(event, commit)
        return True

    def apply(self) -> Followed | None:
        """Write what :meth:`fetch` staged, if there is something and it is safe; never waits for it.

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
        waiting = self._waiting
        if waiting is None or (self._safe is not None and not self._weights.agree(self._safe())):
            return None
        self._waiting, self._root = None, ""  # likewise
        begun = time.monotonic()
        waiting.commit()
        event = waiting.event
        seconds = {**event.seconds, "apply": time.monotonic() - begun}
        self._root, self._settled, self._served = event.root, event.digest, event.digest
        self._chains.forget()
        self._links.clear()
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
        service = self._remote.store.service if self._remote is not None else None
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
        self._links.close()
        if self._own:
            self._space.close()

    def _head(self) -> tuple[Digest, Card]:
        seen: tuple[Digest, Card] | None = None
        problem: MaskregError | None = None
        try:
            resolved = self._resolved(self._remote or self._space.local)
            seen = resolved.digest, resolved.card
        except MaskregError as error:
            problem = error
        # All processes go where the first one saw the tag.
        first, fault = self._weights.agree((seen, problem and problem.message))
        if first is None:
            raise problem or UnavailableError(f"another process could not look at {self.ref}: {fault}")
        digest, card = first
        return digest, card

    def _resolved(self, registry: Registry) -> Resolved:
        """What the tag points to. While it has not moved, that takes one small request."""
        if self._seen is not None:
            at, resolved = self._seen
            is_recent = time.monotonic() - at < LISTED_S
            if is_recent and resolved.entry and registry.refs.peek(self.ref, resolved.entry.n + 1) is None:
                return resolved
        resolved = registry.resolve(self.ref)
        self._seen = time.monotonic(), resolved
        return resolved

    def _way(self, head: Digest) -> tuple[Step, ...]:
        try:
            self._root = self._root or self._weights.root(self._chains, head)
            return self._chains.way(self.ref, head, self._root)
        except (NotOnChainError, MissingLinkError):
            start = self._weights.begin_again()
            if start is None:
                raise
            steps = self._chains.way(self.ref, head, start)
            self._root = start
            return steps


def own_name() -> str:
    """What a service shows this process as where it was given no name: the machine and the process id."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:80]
    return f"{host.lstrip('.-') or 'host'}:{os.getpid()}"


class Links(Closing):
    """Links on their way from a remote: in a registry of their own until they are applied.

    A reader of a long run would otherwise fill its disk with links that no name keeps. Garbage collection removes what
    a process left that died.
    """

    def __init__(self, space: Workspace, remote: Registry | None) -> None:
        """Make the registry; without a remote the links are in the local one."""
        self._remote, self._jobs = remote, space.settings.jobs
        name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._folder = space.root / "staging" / name
        self._registry = space.local
        if remote is not None:
            self._registry = Registry(FileStore(self._folder), name="links", root=self._folder)
        self._remove = finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def bring(self, steps: Sequence[Step]) -> tuple[list[tuple[Artifact, bool]], int]:
        """The artifacts of steps, each with whether it is reverted, and how many bytes were fetched."""
        pulls = [
            bring(self._registry, self._remote, step.link.digest, parts=[step.part], jobs=self._jobs) for step in steps
        ]
        artifacts = [(artifact, step.revert) for (artifact, _), step in zip(pulls, steps, strict=True)]
        return artifacts, sum(size for _, size in pulls)

    def clear(self) -> None:
        """Delete the links that were brought."""
        shutil.rmtree(self._folder / "artifacts", ignore_errors=True)

    def close(self) -> None:
        """Delete the registry."""
        if self._remote is not None:
            self._registry.close()
        self._remove()


@dataclass(frozen=True)
class _Waiting:
    # A change that is staged, and what brings it into the weights.
    event: Followed
    commit: Callable[[], None]


def follow(
    model: torch.nn.Module | Mapping[str, torch.Tensor],
    ref: str | Ref,
    *,
    at: ArtifactLike | None = None,
    remote: str | None = None,
    every_s: float = EVERY_S,
    safe: Callable[[], bool] | None = None,
    replica: str | None = None,
    jobs: int | None = None,
    workspace: Workspace | None = None,
) -> Follower:
    """Keep a model in memory at what a run publishes under a tag.

    The model changes only within :meth:`Follower.step` or :meth:`Follower.apply`, in place and on its device: call it
    where nothing reads the weights, such as between two batches. Links are verified and decoded by
    :meth:`Follower.fetch`, beside the model's use; the change that is staged takes 8 bytes for each weight that moves.
    So the model is always exactly what some link gave.

    Args:
        model: a module or a state dict that is the source of the chain, or what any of its links gives.
        at: the artifact whose target the model is. Left out, the model is hashed; one that is sharded over processes
            is taken for the source of the chain.
        remote: where the tag is; by default the default remote, or the local registry where there is none.
        every_s: seconds between two looks at the tag.
        safe: asked before the model changes; while it says no, links wait.
        replica: what a service shows this follower as; by default the name of the machine and the process id.

    Raises:
        UsageError: not a model, a pinned reference, a negative time, or a replica's name that is not clean.
    """
    start: Digest | None = None
    if at is not None:
        with opened(workspace) as space:
            start = space.find(at).digest
    weights = _Model(model, start, jobs)
    return Follower(weights, ref, remote=remote, every_s=every_s, safe=safe, replica=replica, workspace=workspace)


class _Model(Weights):
    """A model in memory."""

    out: Path | None = None

    def __init__(self, model: Any, at: Digest | None, jobs: int | None) -> None:
        with requiring("following with a model in memory"):
            import torch

            from maskreg.live.processes import Processes
            from maskreg.live.state import is_sharded

        if not isinstance(model, torch.nn.Module | Mapping):
            raise UsageError(f"{type(model).__name__} was given; pass a model: a torch module or a state dict")
        self._model = model
        self._at = at
        self._jobs = jobs
        self._root = ""
        self._is_sharded = is_sharded(model)
        self._processes = Processes(None, torch.device("cpu")) if self._is_sharded else None

    def root(self, chains: Chains, head: Digest) -> str:
        if self._root:
            return self._root
        if self._at is not None:
            return chains.link(self._at).after
        if self._is_sharded:
            # Every leaf is checked before the first weight is written, so what is not the source is refused.
            return [*chains.below(head)][-1].before
        from maskreg.flow.chain import root_of
        from maskreg.live.state import ModelState

        expected = RecordedSide(chains.artifact(head), "target").tensors
        return root_of(ModelState(self._model, expected, allow_surplus=True), jobs=self._jobs)

    def stage(self, artifacts: Sequence[tuple[Artifact, bool]], root: str) -> Callable[[], None]:
        from maskreg.flow.apply.staging import stage
        from maskreg.update.delta import Delta

        def commit() -> None:
            if staged is not None:
                staged.commit()
            self._root = root

        def deltas() -> list[Delta]:
            return [Delta(artifact, revert=revert) for artifact, revert in artifacts]

        staged = stage(self._model, deltas, jobs=self._jobs) if artifacts else None
        return commit

    def agree(self, value: Any) -> Any:
        return value if self._processes is None else self._processes.gathered(value)[0]

    def all(self, value: bool) -> bool:
        return value if self._processes is None else all(self._processes.gathered(value))
