"""Extract a result: what a training has made of its source, from the model in memory, wherever its shards are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Unpack

from maskreg.errors import UsageError
from maskreg.extras import requiring
from maskreg.flow.publish.division import divided, undivided
from maskreg.flow.publish.result import extract_shards
from maskreg.live.alone import Alone
from maskreg.parallel import worker_count
from maskreg.ref import Card, Ref
from maskreg.workspace.sources import verified_source
from maskreg.workspace.storing import Naming
from maskreg.workspace.verbs.extract import CardOptions, Extracted, card_of, remembered
from maskreg.workspace.verbs.pull import with_mask
from maskreg.workspace.workspace import ArtifactLike, CheckpointLike, Named, Workspace, opened

if TYPE_CHECKING:
    import torch

    from maskreg.checkpoint import Checkpoint
    from maskreg.live.processes import Processes


def extract_result(
    model: torch.nn.Module | Mapping[str, torch.Tensor],
    artifact: ArtifactLike | None = None,
    *,
    source: CheckpointLike | None = None,
    name: str | Ref | None = None,
    force: bool = False,
    dry_run: bool = False,
    workspace: Workspace | None = None,
    **card: Unpack[CardOptions],
) -> Extracted | None:
    """Store what a training has changed, from the model in memory, as an artifact of the local registry.

    The artifact is the one, of the same digest, that :func:`extract` makes of the source and of a folder with the model
    and the source's configuration and other small files. No shard is gathered and no model saved: every process codes
    its own shards against the source on its disk, and the first one writes. Where torch.distributed is in use, all
    processes call it, and fail together.

    Args:
        model: a model or its state dict: whole, replicated, or sharded as DTensors (FSDP2, HSDP, tensor parallel). It
            must not change meanwhile.
        artifact: its mask was trained; coordinates outside of it that have changed are an error. Pulled if it is not
            in the local registry. None where all coordinates can change.
        source: the checkpoint that training began from; by default the artifact's. One in 32 bits or more gives a mask
            alone. Its files are mapped into memory, and must stay as they are.
        dry_run: check everything but the weights, and store nothing.
        card: see :class:`CardOptions`; without a family, the artifact's.

    Returns:
        What was stored, in the first process; None in the others, and for a dry run.

    Raises:
        UsageError: neither an artifact nor a source; or only some processes hold parts of the model.
        WrongCheckpointError: the model has other tensors than the source, or the source is not the artifact's.
        PairMismatchError: coordinates outside the mask have changed, or a tensor has another dtype than the source's.
        TryAgainError: the weights changed while they were read.
    """
    if artifact is None and source is None:
        raise UsageError("neither a mask nor a source was named", hint="pass the mask that was trained, or source=PATH")
    said = card_of(card)
    with requiring("a result from a model in memory"):
        from maskreg.live.processes import all_processes
        from maskreg.live.state import ModelState, is_sharded

    with ExitStack() as stack:
        everyone = stack.enter_context(all_processes(model))
        # Of copies, the first process's is the result.
        processes = everyone if is_sharded(model) else Alone()
        is_first = everyone.rank == everyone.ranks[0]

        def store() -> Extracted | None:
            space = processes.together(lambda: stack.enter_context(opened(workspace)))
            naming = processes.together(lambda: Naming(space, name, careful=not force) if is_first else None)
            named = _named(space, artifact, processes)

            def open_source() -> Checkpoint:
                given = source if named is None else verified_source(space, named.artifact, source=source)
                assert given is not None
                opened_source = stack.enter_context(space.checkpoint(given, side="source"))
                # Training has mapped the source too, and needs its memory for itself.
                opened_source.map()
                return opened_source

            before = processes.together(open_source)
            rank, forms = processes.rank, before.tensors
            state = processes.together(lambda: ModelState(model, forms, before.small_files(), rank=rank))
            if dry_run:
                return None
            extracted = extract_shards(
                before,
                state,
                undivided(forms) if isinstance(processes, Alone) else divided(forms, state.held, processes),
                processes,
                space.root,
                mask=named.artifact if named else None,
                source_root=named.artifact.manifest.source.root if named else "",
                # Processes of one machine share its cores.
                jobs=max(1, worker_count(None) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))),
            )
            if naming is None or extracted is None:
                return None
            derived = Card(named.card.family if named else "")
            stored = naming.store(extracted.digest, said, extracted.notes, derived=derived)
            return remembered(space, stored, extracted, before.path)

        return everyone.together(lambda: store() if is_first or is_sharded(model) else None)


def _named(space: Workspace, artifact: ArtifactLike | None, processes: Processes | Alone) -> Named | None:
    """The artifact in every process, of which the first might have to pull it for others."""
    if artifact is None:
        return None
    is_first = processes.rank == processes.ranks[0]
    first = processes.together(lambda: with_mask(space, artifact) if is_first else None)
    return processes.together(lambda: first or with_mask(space, artifact))
