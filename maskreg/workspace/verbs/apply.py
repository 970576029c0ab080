"""Apply: patch the source into the target, on disk or in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from maskreg.bucket import Location
from maskreg.errors import UsageError
from maskreg.extras import requiring
from maskreg.flow.apply.on_disk import ApplyResult
from maskreg.flow.apply.on_disk import apply as apply_on_disk
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.update.delta import Delta
from maskreg.update.route import switching
from maskreg.workspace.sources import sources
from maskreg.workspace.storing import free_path
from maskreg.workspace.workspace import ArtifactLike, CheckpointLike, WorkOptions, Workspace, opened, split_options

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

    from maskreg.digest import Digest


@dataclass(frozen=True)
class Applied(ApplyResult):
    """A checkpoint that an artifact was applied to make."""

    ref: Ref | None
    digest: Digest
    source: Location


def apply(
    artifact: ArtifactLike,
    source: CheckpointLike | None = None,
    out: str | Path | None = None,
    *,
    revert: bool = False,
    force: bool = False,
    download: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
    **work: Unpack[WorkOptions],
) -> Applied:
    """Patch a checkpoint: the source into the target, or back.

    Every leaf is checked before its block is decoded, and every leaf of the result after. The output appears at the
    end, whole, or not at all.

    Args:
        artifact: needs a delta; to go back, a reverse part.
        source: the checkpoint to patch; with ``revert`` the artifact's target. Without one, it is looked for where
            this machine has seen it, then in the hub cache.
        out: where the result goes; by default a folder named like the artifact, in the current directory.
        revert: turn the target into the source.
    """
    split_options(work, WorkOptions)
    with opened(workspace) as space:
        named = space.find(artifact)
        path = _output(named.ref, out, source, force=force)

        manifest = named.artifact.manifest
        side = manifest.target if revert else manifest.source
        for attempt in sources(space, side, source=source, download=download):
            with attempt as checkpoint:
                written = apply_on_disk(
                    named.artifact, checkpoint, path, revert=revert, force=force, progress=progress, **work
                )
    return Applied(**vars(written), ref=named.ref, digest=named.digest, source=checkpoint.path)


def apply_(
    model: torch.nn.Module | Mapping[str, torch.Tensor],
    artifact: ArtifactLike,
    *,
    revert: bool = False,
    jobs: int | None = None,
    group: ProcessGroup | None = None,
    workspace: Workspace | None = None,
) -> None:
    """Patch a model in memory, in place: the source into the target, or back.

    Every tensor is checked before the first one is written. Memory is bounded by one block per thread, four on a GPU.
    Tied weights are patched once; tensors that the artifact does not know stay.

    All processes of a sharded model (FSDP2, tensor parallelism, any DTensor) call it together. Each keeps its share of
    the compressed delta in memory meanwhile, and if one fails before anything is written, all do.

    Args:
        model: a module or a state dict with every tensor of the artifact, on any device; prefixes of wrappers
            (``module.``, ``_orig_mod.``) are resolved where that is unambiguous.
        artifact: needs a delta; to go back, a reverse part.
        revert: turn the target into the source.

    Raises:
        UsageError: not a model, or one that cannot be patched in place: the artifact adds, removes or reshapes
            tensors, tensors overlap in memory, or a wrapper (FSDP1, ZeRO-3) keeps them elsewhere.
        WrongCheckpointError: a tensor does not match; or something else wrote to it during patching, and the model is
            half patched.
        AlreadyAppliedError: the model is the result already.
    """
    _patch(model, lambda space: [Delta(space.find(artifact).artifact, revert=revert)], jobs, group, workspace)


def switch_(
    model: torch.nn.Module | Mapping[str, torch.Tensor],
    before: ArtifactLike,
    after: ArtifactLike,
    *,
    jobs: int | None = None,
    group: ProcessGroup | None = None,
    workspace: Workspace | None = None,
) -> None:
    """Patch a model in memory, in place: the target of one artifact into the target of another.

    Both are updates of one source, which need not be on disk: block by block, the model goes back to it and on, and
    only the result is written. As with :func:`apply_`, everything is checked first.

    Args:
        model: as :func:`apply_` takes it.
        before: the artifact whose target the model is; needs a reverse part.
        after: the artifact whose target it becomes; needs a delta.

    Raises:
        PairMismatchError: the artifacts have different sources.
        UsageError: both are one artifact; or as :func:`apply_`.
    """
    _patch(
        model, lambda space: switching(space.find(before).artifact, space.find(after).artifact), jobs, group, workspace
    )


def _patch(
    model: torch.nn.Module | Mapping[str, torch.Tensor],
    deltas: Callable[[Workspace], Sequence[Delta]],
    jobs: int | None,
    group: ProcessGroup | None,
    workspace: Workspace | None,
) -> None:
    with requiring("patching a model in memory"):
        import torch

        from maskreg.flow.apply.in_memory import patch_

    if not isinstance(model, torch.nn.Module | Mapping):
        raise UsageError(f"{type(model).__name__} was given; pass a model: a torch module or a state dict")
    with ExitStack() as stack:
        # Where several processes patch a model, all must know if one does not find the artifact.
        patch_(model, lambda: deltas(stack.enter_context(opened(workspace))), jobs=jobs, group=group)


def _output(ref: Ref | None, out: str | Path | None, source: object, *, force: bool) -> Path:
    if out is None and ref is None:
        raise UsageError("an artifact without a name needs a path to write to", options={"out": None})
    return free_path(out if out is not None else ref.name if ref else "", force=force, source=source)
