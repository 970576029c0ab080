"""A trained model as a checkpoint, tensor by tensor, in the form in which the source is stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from maskreg.checkpoint import Checkpoint
from maskreg.checkpoint.plan import plan_like
from maskreg.checkpoint.writing import write_checkpoint
from maskreg.errors import DataError
from maskreg.live.layout import Join, Link, links
from maskreg.live.memory import CODES, DTYPES
from maskreg.live.naming import find
from maskreg.mask.packed import Mask
from maskreg.tensors.info import FLOAT, TensorInfo

if TYPE_CHECKING:
    import numpy.typing as npt

_COPY_NUMEL = 1 << 22

_GATHERED_JOINS = 3
"""Joined parameters held at once: gate, up and down of a layer's experts."""


def check_dtypes(model: torch.nn.Module, source: Checkpoint, mask: Mask) -> None:
    """Reject training in a narrower dtype than weights are stored in."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, join in _joins(model, source).items():
        stored, trained = source.tensors[name].dtype, parameters[join.targets[0]].dtype
        if trained != DTYPES[stored] and (trained != torch.float32 or stored == "F64"):
            if name in mask and not mask[name].nnz:
                continue
            narrow = str(trained).removeprefix("torch.")
            raise DataError(
                f"{name} is stored in {stored} and would be trained in {narrow}",
                hint="--dtype float32" if stored != "F64" else "leave --dtype float32 out, or store all of it in F64",
            )


def _gathered(
    model: torch.nn.Module, source: Checkpoint, *, is_first: bool
) -> Iterator[tuple[TensorInfo, npt.NDArray[Any] | None]]:
    """Every tensor of the source as the model has it now, in the order of the source; a collective call.

    Yields:
        The tensor, and its bits as unsigned integers of the stored width, flat; None for a tensor that is not a
        parameter of the model, and in all processes but the first.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    joins = _joins(model, source)
    # Experts are stored one by one but joined in the model: one gathered parameter serves many tensors.
    recent: dict[Join, list[Link]] = {}
    for info in source.tensors.values():
        join = joins.get(info.name)
        if join is None:
            yield info, None
            continue
        if join not in recent:
            while len(recent) >= _GATHERED_JOINS:
                del recent[next(iter(recent))]
            full = {name: _full(parameters[name].detach()) for name in join.targets}
            shapes = {name: source.tensors[name].shape for group in join.sources for name in group}
            recent[join] = links(join, shapes, full)
        yield info, _bits(info, recent[join]) if is_first else None


def write_result(model: torch.nn.Module, source: Checkpoint, out: Path, *, is_first: bool) -> None:
    """Write the model as a checkpoint with the source's files, tensor order and dtypes, whole or not at all."""
    tensors = _gathered(model, source, is_first=is_first)
    if not is_first:
        for _ in tensors:
            pass
        return
    with write_checkpoint(out, plan_like(source)) as writer:
        for info, bits in tensors:
            if bits is not None:
                writer.write(bits)
                continue
            for start in range(0, info.numel, _COPY_NUMEL):
                writer.write(source.read(info.name, start, min(start + _COPY_NUMEL, info.numel)))


def _full(tensor: torch.Tensor) -> torch.Tensor:
    gather = getattr(tensor, "full_tensor", None)
    full: torch.Tensor = tensor if gather is None else gather()
    return full


def _bits(info: TensorInfo, parts: list[Link]) -> npt.NDArray[Any]:
    values = torch.empty(info.shape, dtype=DTYPES[info.dtype])
    for link in parts:
        if link.tensor == info.name:
            view = link.of_tensor
            values.as_strided(view.shape, view.stride(), view.storage_offset()).copy_(link.of_parameter)
    return values.reshape(-1).view(CODES[info.item_bytes]).numpy().view(f"u{info.item_bytes}")


def _joins(model: torch.nn.Module, source: Checkpoint) -> dict[str, Join]:
    """How each tensor of the source became part of the model, without those that are not in a parameter."""
    floats = [name for name, info in source.tensors.items() if info.dtype in FLOAT]
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return {name: join for join in find(floats, parameters, model).joins for group in join.sources for name in group}
