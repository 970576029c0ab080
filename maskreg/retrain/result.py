"""What training made of a checkpoint: its tensors gathered one by one in the form in which the source stores them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from maskreg.checkpoint import Checkpoint, TensorInfo, plan_like, write_checkpoint
from maskreg.compare import parse_rule, to_bf16
from maskreg.errors import DataError
from maskreg.live.naming import bare
from maskreg.mask.packed import Mask
from maskreg.retrain.parallel import World, whole

if TYPE_CHECKING:
    import numpy.typing as npt

_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}
_SIGNED = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_COPY_NUMEL = 1 << 22


def check_dtypes(model: torch.nn.Module, source: Checkpoint, mask: Mask) -> None:
    """Refuse to train weights in a narrower dtype than the one that they are stored in.

    Raises:
        DataError: which, and what to do.
    """
    for name, parameter in _parameters(model).items():
        info = source.tensors.get(name)
        if info is None or info.dtype not in _DTYPES or not mask[name].nnz:
            continue
        if parameter.dtype not in (_DTYPES[info.dtype], torch.float32) or info.dtype == "F64":
            narrow = str(parameter.dtype).removeprefix("torch.")
            raise DataError(
                f"{name} is stored in {info.dtype} and would be trained in {narrow}",
                hint="add --dtype float32",
            )


def gathered(
    model: torch.nn.Module, source: Checkpoint, world: World
) -> Iterator[tuple[TensorInfo, npt.NDArray[Any] | None]]:
    """Every tensor of the source as the model has it now, in the order in which the source stores them.

    Every process takes part; only the first is given values.

    Yields:
        The tensor, and its bits as unsigned integers of the stored width, flat; None for one that the model does not
        train, and in other processes.
    """
    parameters = _parameters(model)
    for shard in source.shards:
        for info in shard.tensors:
            parameter = parameters.get(info.name)
            if parameter is None or info.dtype not in _DTYPES:
                yield info, None
                continue
            values = whole(parameter.detach())
            yield info, _bits(values, info) if world.first else None


def write_result(model: torch.nn.Module, source: Checkpoint, out: Path, world: World) -> None:
    """Write the model as a checkpoint with the source's files, tensor order and dtypes, whole or not at all.

    Raises:
        CannotCreateError: it cannot be written.
    """
    if not world.first:
        for _ in gathered(model, source, world):
            pass
        return
    with write_checkpoint(out, plan_like(source)) as writer:
        for info, bits in gathered(model, source, world):
            if bits is not None:
                writer.write(bits)
                continue
            for start in range(0, info.numel, _COPY_NUMEL):
                writer.write(source.read(info.name, start, min(start + _COPY_NUMEL, info.numel)))


def moved_share(model: torch.nn.Module, source: Checkpoint, world: World) -> float:
    """Share of the source's coordinates whose bf16 codes are others by now; right in the first process only."""
    rule = parse_rule("exact")
    moved = numel = 0
    for info, bits in gathered(model, source, world):
        if bits is None:
            continue
        numel += info.numel
        for start in range(0, info.numel, _COPY_NUMEL):
            stop = min(start + _COPY_NUMEL, info.numel)
            before = to_bf16(source.read(info.name, start, stop), info.dtype)
            moved += int(np.count_nonzero(rule.moved(before, to_bf16(bits[start:stop], info.dtype))))
    return moved / max(numel, 1)


def _bits(values: torch.Tensor, info: TensorInfo) -> npt.NDArray[Any]:
    flat = values.to(_DTYPES[info.dtype]).cpu().contiguous().reshape(-1)
    return flat.view(_SIGNED[info.item_bytes]).numpy().view(f"u{info.item_bytes}")


def _parameters(model: torch.nn.Module) -> Mapping[str, torch.Tensor]:
    named = dict(model.named_parameters(remove_duplicate=False))
    return {plain: named[name] for name, plain in bare(named).items()}
