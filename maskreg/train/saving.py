"""Saving a trained model, which processes can share."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import torch

from maskreg.bucket import Location


def save_model(model: torch.nn.Module, source: str | Location, out: str | Path) -> None:
    """Save a model as a checkpoint like the one that its training started from, whole or not at all.

    A collective call where processes share the model: the first one gathers and writes a block of 4 M weights at a
    time. Files, names, order and dtypes of tensors are the source's.

    Args:
        source: the checkpoint: a path, a URL or a hub id.
        out: the folder to write; there must be nothing yet.

    Raises:
        OutputExistsError: there is something already.
        WrongCheckpointError: the model has other tensors than the checkpoint.
    """
    # Imported here, because each use of the optimizers imports this module, and they work without.
    from maskreg.checkpoint import open_checkpoint
    from maskreg.flow.publish.saving import save_like
    from maskreg.live.processes import all_processes
    from maskreg.live.state import ModelState

    with all_processes(model) as processes, ExitStack() as stack:
        opened = processes.together(lambda: stack.enter_context(closing(open_checkpoint(source))))
        # Otherwise what the model lacks would be taken from the source.
        processes.together(lambda: ModelState(model, opened.tensors, rank=processes.rank))
        save_like(model, opened, Path(out).expanduser())
