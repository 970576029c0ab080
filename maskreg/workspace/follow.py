"""Follow: keep a model in memory, or a folder, at what a run publishes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskreg.digest import Digest
from maskreg.errors import UsageError
from maskreg.extras import requiring
from maskreg.ref import Ref
from maskreg.registry.chains import Chains
from maskreg.update.verified import RecordedSide
from maskreg.workspace.following import EVERY_S, Follower
from maskreg.workspace.workspace import ArtifactLike, Workspace, opened

if TYPE_CHECKING:
    import torch

    from maskreg.artifact.reader import Artifact


def follow(
    model: torch.nn.Module | Mapping[str, torch.Tensor],
    ref: str | Ref,
    *,
    at: ArtifactLike | None = None,
    remote: str | None = None,
    every_s: float = EVERY_S,
    safe: Callable[[], bool] | None = None,
    jobs: int | None = None,
    workspace: Workspace | None = None,
) -> Follower:
    """Keep a model in memory at what a run publishes under a tag.

    The model changes only within :meth:`Follower.step` or :meth:`Follower.apply`, in place and on its device: call it
    where nothing reads the weights, such as between two batches. Every link is checked before the first weight is
    written, so the model is always exactly what some link gave.

    Args:
        model: a module or a state dict that is the source of the chain, or what any of its links gives.
        ref: the tag.
        at: the artifact whose target the model is. Left out, the model is hashed; one that is sharded over processes
            is taken for the source of the chain.
        remote: where the tag is; by default the default remote, or the local registry where there is none.
        every_s: seconds between two looks at the tag.
        safe: asked before the model changes; while it says no, links wait.
        jobs: threads that patch; by default one per CPU, at most 16.
        workspace: says where the tag is; by default what the settings say.

    Raises:
        UsageError: not a model, a pinned reference, or a negative time.
        ConfigError: there is no such remote, several and no default, or torch is not installed.
    """
    start: Digest | None = None
    if at is not None:
        with opened(workspace) as space:
            start = space.find(at).digest
    return Follower(_Model(model, start, jobs), ref, remote=remote, every_s=every_s, safe=safe, workspace=workspace)


class _Model:
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

    def take(self, artifacts: Sequence[tuple[Artifact, bool]], root: str) -> None:
        from maskreg.flow.apply.in_memory import apply_

        for artifact, revert in artifacts:
            apply_(self._model, artifact, revert=revert, jobs=self._jobs)
            manifest = artifact.manifest
            self._root = (manifest.source if revert else manifest.target).root

    def begin_again(self) -> str | None:
        return None

    def agree(self, value: Any) -> Any:
        return value if self._processes is None else self._processes.gathered(value)[0]

    def all(self, value: bool) -> bool:
        return value if self._processes is None else all(self._processes.gathered(value))

    def close(self) -> None:
        pass
