"""Saving a model as a checkpoint like its source: gathered block by block, by the first process, which writes it."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch

from maskreg.checkpoint import Checkpoint
from maskreg.checkpoint.plan import plan_like
from maskreg.checkpoint.writer import CheckpointWriter
from maskreg.checkpoint.writing import write_checkpoint
from maskreg.flow.publish.division import owned_by
from maskreg.flow.publish.result import Weights
from maskreg.live.memory import CODES, DTYPES
from maskreg.live.naming import find
from maskreg.live.processes import all_processes
from maskreg.live.state import ModelState
from maskreg.tensors.info import FLOAT, TensorInfo, blocks_of


def save_like(model: torch.nn.Module, source: Checkpoint, out: Path) -> None:
    """Write the model as a checkpoint with the source's files, tensor order and dtypes, whole or not at all.

    What is no parameter of the model is copied. A collective call, of which the first process gathers a block at a time
    and writes it.
    """
    with all_processes(model) as processes, ExitStack() as stack:
        state = processes.together(lambda: state_of(model, source, processes.rank))
        weights = Weights(
            state, owned_by(processes.ranks[0], {name: held.of for name, held in state.held.items()}), processes
        )
        writing: AbstractContextManager[CheckpointWriter | None]
        writing = nullcontext() if processes.rank != processes.ranks[0] else write_checkpoint(out, plan_like(source))
        writer = processes.together(lambda: stack.enter_context(writing))

        def write(info: TensorInfo, start: int, stop: int) -> None:
            if writer is not None:
                writer.write(_stored(info, weights, source, (start, stop)))

        for info in source.tensors.values():
            for start, stop in blocks_of(info.numel):
                with weights.window([(info.name, start)]):
                    processes.together(partial(write, info, start, stop))


def _stored(info: TensorInfo, weights: Weights, source: Checkpoint, span: tuple[int, int]) -> npt.NDArray[Any]:
    """Elements of a tensor as they are stored."""
    if info.name not in weights.tensors:
        return source.read(info.name, *span)
    bits, held = weights.read(info.name, *span), weights.tensors[info.name].dtype
    if held == info.dtype:
        return bits
    cast = torch.from_numpy(bits.view(f"i{bits.itemsize}")).view(DTYPES[held]).to(DTYPES[info.dtype])
    return cast.view(CODES[info.item_bytes]).numpy().view(f"u{info.item_bytes}")


def state_of(model: torch.nn.Module, source: Checkpoint, rank: int = 0) -> ModelState:
    """The parameters of a model as the source's tensors."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    floats = [name for name, info in source.tensors.items() if info.dtype in FLOAT]
    joins = find(floats, parameters, model).joins
    held = {name: source.tensors[name] for join in joins for group in join.sources for name in group}
    return ModelState(model, held, tensors=parameters, allow_surplus=True, rank=rank)
