"""What a tag points to, held by the processes that publish the next link."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from maskreg.artifact.manifest import Link
from maskreg.artifact.staging import new_folder
from maskreg.checkpoint import Checkpoint, named_like
from maskreg.digest import Digest
from maskreg.errors import BrokenChainError, MissingLinkError, UsageError
from maskreg.extras import requiring
from maskreg.flow.chain import Chained
from maskreg.flow.publish.baseline import Baseline
from maskreg.flow.publish.division import Block, divided, undivided
from maskreg.flow.publish.publication import Publication
from maskreg.parallel import worker_count
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.chains import Chains
from maskreg.workspace.sources import sources
from maskreg.workspace.storing import remember
from maskreg.workspace.workspace import CheckpointLike, Workspace

if TYPE_CHECKING:
    from maskreg.live.alone import Alone
    from maskreg.live.processes import Processes
    from maskreg.live.state import Changes


class LatestWeights:
    """The weights that a tag points to, as far as this process works on them. The next link is coded against them.

    They move on when a link is stored.

    Attributes:
        root: their identity; empty while nothing is held.
    """

    def __init__(
        self,
        space: Workspace,
        ref: Ref,
        source: CheckpointLike | None,
        remote: Registry | None,
        *,
        on_disk: bool,
        jobs: int | None,
    ) -> None:
        """Nothing is read yet."""
        self.root = ""
        self._space, self._ref, self._source = space, ref, source
        self._on_disk, self._jobs = on_disk, worker_count(jobs)
        self._chains = Chains([space.local, *([remote] if remote is not None else [])])
        self._baseline: Baseline | None = None
        self._head: Digest | None = None
        # Whether these are the weights of when it was last told what has changed; and will be, once they move on.
        self._is_exact = self._will_be_exact = False
        # By root, which link says that the chain was in this state; read once for each head.
        self._states: dict[str, str] = {}
        self._states_head: Digest | None = None

    def prepare(self, head: Digest | None, weights: Any, processes: Processes | Alone) -> None:
        """Hold the weights of an artifact, or of the source where there is none; called by all processes.

        ``weights``: what will be published, whose layout decides what each process holds; None for all in one.
        """
        with ExitStack() as stack:
            self._at(head, weights, processes, stack)

    def moved(
        self, head: Digest | None, weights: Any, processes: Processes | Alone, changed: Changes | None
    ) -> Publication:
        """What moved in weights since an artifact, or the source where there is none; called by all processes.

        ``changed``: what can have, since it was last given.
        """
        with ExitStack() as stack:
            baseline, target = self._at(head, weights, processes, stack)
            assert target is not None
            is_exact = all(processes.gathered(self._is_exact))
            self._is_exact = False

            def take() -> Publication:
                among = {} if changed is None else target.moved(changed)  # type: ignore[attr-defined]
                publication = Publication.take(baseline, target, processes.rank, self._jobs, among if is_exact else {})
                if hasattr(target, "check_unchanged"):
                    target.check_unchanged()
                self._is_exact, self._will_be_exact = changed is not None and not publication.moved, changed is not None
                return publication

            return processes.together(take)

    def advance(self, publication: Publication, link: Link) -> None:
        """Move on to the weights that a link gives, now that the tag points to it."""
        publication.advance()
        self._head, self.root, self._is_exact = link.digest, link.after, self._will_be_exact
        if self._states_head is not None and self._states_head == link.below:
            self._states[link.after], self._states_head = f"{link.digest.short} gives", link.digest

    def drop(self) -> None:
        """Free what is held."""
        if self._baseline is not None:
            self._baseline.close()
        self._baseline, self.root, self._is_exact = None, "", False

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

    def length(self, head: Digest) -> int:
        """How many artifacts lead to this one from the first of its chain, both included."""
        return len(self._earlier(head)) - 1

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

    def _at(
        self, head: Digest | None, weights: Any, processes: Processes | Alone, stack: ExitStack
    ) -> tuple[Baseline, Checkpoint | None]:
        if not any(processes.gathered(processes.together(lambda: self._is_stale(head)))):
            assert self._baseline is not None
            baseline = self._baseline
            target = processes.together(lambda: self._target(weights, baseline, processes.rank, stack))
            blocks = self._divided(baseline, target, processes)
            if all(processes.gathered(_layout(blocks) == _layout(baseline.blocks))):
                return baseline, target
        self.drop()
        return self._begin(head, weights, processes, stack)

    def _is_stale(self, head: Digest | None) -> bool:
        if not self.root:
            return True
        if head == self._head:
            return False
        if head is None or self._chains.link(head).after != self.root:
            return True
        self._head = head
        return False

    def _begin(
        self, head: Digest | None, weights: Any, processes: Processes | Alone, stack: ExitStack
    ) -> tuple[Baseline, Checkpoint | None]:
        """Read the source, and then take the links up to the head."""
        rank, space = processes.rank, self._space
        source = processes.together(lambda: self._opened(head, stack))
        target = processes.together(lambda: self._target(weights, source, rank, stack))
        blocks = self._divided(source, target, processes)
        folder = new_folder(space.root)
        read = partial(Baseline, source, blocks, rank, folder=folder, on_disk=self._on_disk, jobs=self._jobs)
        self._baseline = baseline = processes.together(read)
        root = baseline.root(processes)

        def catch_up() -> str:
            remember(space, root, source.path)
            steps = self._chains.way(self._ref, head, root) if head is not None else ()
            artifacts, _ = self._chains.bring(steps, space.local, space.settings.jobs)
            if artifacts:
                baseline.take(Chained(source, artifacts, jobs=self._jobs))
            return steps[-1].after if steps else root

        self.root, self._head = processes.together(catch_up), head
        return baseline, target

    def _opened(self, head: Digest | None, stack: ExitStack) -> Checkpoint:
        if self._source is not None:
            return stack.enter_context(self._space.checkpoint(self._source, side="source"))
        if head is None:
            raise UsageError(
                f"there is no {self._ref} yet, so its source has to be named", hint="pass source=CHECKPOINT"
            )
        first = [*self._chains.below(head)][-1]
        # It raises where there is none.
        with next(iter(sources(self._space, first.manifest.source))) as found:
            path = found.path
        return stack.enter_context(self._space.checkpoint(str(path), side="source"))

    def _target(self, weights: Any, like: Checkpoint, rank: int, stack: ExitStack) -> Checkpoint | None:
        """Weights under the names of another checkpoint."""
        if weights is None:
            return None
        if is_model(weights):
            with requiring("publishing a model in memory"):
                from maskreg.live.state import ModelState
            return ModelState(weights, like.tensors, like.small_files(), rank=rank)
        return named_like(stack.enter_context(self._space.checkpoint(weights, side="target")), like.tensors)

    def _divided(self, like: Checkpoint, target: Checkpoint | None, processes: Processes | Alone) -> list[Block]:
        if len(processes.ranks) == 1:
            return undivided(like.tensors)
        return divided(like.tensors, target.held, processes)  # type: ignore[union-attr]


def is_model(weights: object) -> bool:
    """Whether weights are a model or its state dict, and not a checkpoint."""
    # Asked by its method: where torch is not installed, nothing is a module.
    return hasattr(weights, "state_dict") or hasattr(weights, "items")


def _layout(blocks: Sequence[Block]) -> list[object]:
    """What tells two divisions apart for this process."""
    return [(*block[:4], sorted((rank, s.start, s.stop) for rank, s in block.taken.items())) for block in blocks]
