"""The weights of a model in memory, read like a checkpoint: under the names and in the layout of one on a disk.

Of a model that several processes hold, each reads its own coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from maskreg.bucket import Location
from maskreg.checkpoint.base import Checkpoint, Memory
from maskreg.errors import TryAgainError, UsageError, WrongCheckpointError
from maskreg.live.held import Held, held, whole
from maskreg.live.layout import Join, links
from maskreg.live.memory import NAMES, bits_of
from maskreg.live.naming import bare, find, missing_error
from maskreg.live.shards import local_of
from maskreg.tensors.info import TensorInfo

Positions = npt.NDArray[np.int64]
Bits = npt.NDArray[Any]

Changes = Iterable[tuple[str, Positions, Bits]]
"""What has changed of parameters: names, positions in their flat local parts, int64 ``[k]``, and bits there ``[k]``."""


class ModelState(Checkpoint):
    """The weights of a running model, as the tensors of a checkpoint. Fused and stacked parameters are read apart.

    Nothing is copied but the span that is read. The model must not change while it is read.

    Attributes:
        held: by name, what this process holds of each tensor.
    """

    def __init__(
        self,
        model: torch.nn.Module | Mapping[str, torch.Tensor],
        expected: Mapping[str, TensorInfo],
        small_files: Mapping[str, Location] | None = None,
        *,
        tensors: Mapping[str, torch.Tensor] | None = None,
        allow_surplus: bool = False,
        rank: int = 0,
    ) -> None:
        """Find every tensor of a checkpoint in a module or its state dict, wrapped or not; dtypes are the model's.

        ``tensors``: the model's, by name, where the model itself holds a part of each only. ``rank``: of this process,
        where several hold the model.
        """
        self.format = "safetensors"
        self.path = Path()
        self._small_files = small_files or {}
        module = model if isinstance(model, torch.nn.Module) else None
        self._tensors = tensors = tensors_of(model) if tensors is None else tensors
        matches = find(expected, tensors, module)
        if absent := matches.missing + matches.ignored:
            raise missing_error(absent[0], expected, tensors, hint="this is the model of another checkpoint")
        shapes = {name: info.shape for name, info in expected.items()}
        of_joins = located(matches.joins, shapes, tensors, self._check_form, rank=rank, hint="publish a checkpoint")
        self.held: Mapping[str, Held] = dict(of_joins)
        if not allow_surplus:
            _refuse_surplus(module, tensors, self.held)
        self.tensors = {
            name: TensorInfo(name, NAMES[self.held[name].local.dtype], info.shape) for name, info in expected.items()
        }
        self._versions = self._counted()
        self._flattened: tuple[str, torch.Tensor | None] = "", None

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements of a tensor, copied from its device if that is not the CPU; of a shard, its own in their order."""
        flat = self._flat(name)
        if not 0 <= start <= stop <= flat.numel():
            raise ValueError(f"{name}: elements {start} to {stop} of {flat.numel()}")
        return flat[start:stop].cpu().numpy().view(np.dtype(f"<u{self.tensors[name].item_bytes}"))

    def small_files(self) -> Mapping[str, Location]:
        """Small files of the checkpoint that names come from."""
        return self._small_files

    def close(self) -> None:
        """Nothing: the model belongs to its owner."""

    def moved(self, changed: Changes) -> dict[str, tuple[Positions, Bits]]:
        """By tensor, coordinates that might have changed, as numbers among those held of it, and their bits.

        Args:
            changed: of parameters, each at least once, as ``maskreg.train.changed`` gives it. A tensor that is not one
                piece of one of these is left out.
        """
        tensors = {bare(name): tensor for name, tensor in self._tensors.items()}
        pieces: dict[int, list[str]] = {}
        for name, item in self.held.items():
            if item.local.is_contiguous():
                pieces.setdefault(item.local.untyped_storage().data_ptr(), []).append(name)
        found: dict[str, list[tuple[Positions, Bits]]] = {}
        for parameter, positions, bits in changed:
            if (tensor := tensors.get(bare(parameter))) is None:
                hint = "pass changed(optimizer) of the optimizer that trains this model"
                raise UsageError(f"{parameter} has changed, and is no parameter of this model", hint=hint)
            local = local_of(tensor.detach())
            for name in pieces.get(local.untyped_storage().data_ptr(), ()) if local.is_contiguous() else ():
                piece = self.held[name].local
                first = int(piece.storage_offset() - local.storage_offset())
                begin, end = np.searchsorted(positions, [first, first + piece.numel()])
                found.setdefault(name, []).append((positions[begin:end] - first, bits[begin:end]))
        joined = {name: [np.concatenate(part) for part in zip(*parts, strict=True)] for name, parts in found.items()}
        return {name: (positions, bits) for name, (positions, bits) in joined.items()}

    def check_unchanged(self) -> None:
        """Raise TryAgainError if an operation of torch has written to a weight since this was created."""
        for name, version in self._counted().items():
            if version != self._versions[name]:
                raise TryAgainError(
                    f"the weights changed while they were read, {name} among them; nothing was published",
                    hint="publish between two optimizer steps",
                )

    def _check_form(self, name: str, target: str) -> None:
        tensor = local_of(self._tensors[target].detach())
        if tensor.is_meta or tensor.layout is not torch.strided:
            state = "on the meta device" if tensor.is_meta else "sparse"
            hint = "load it first" if tensor.is_meta else "publish the model before it is pruned"
            raise WrongCheckpointError(name, f"its data is {state}", hint=hint)
        if tensor.dtype not in NAMES:
            fault = f"{tensor.dtype}, which is not read from a model"
            raise WrongCheckpointError(name, fault, hint="publish a checkpoint")

    def _counted(self) -> dict[str, int]:
        return {name: item.local._version for name, item in self.held.items()}

    def _flat(self, name: str) -> torch.Tensor:
        bits = bits_of(self.held[name].local)
        if bits.is_contiguous():
            return bits.reshape(-1)
        # One copy for all blocks of a tensor, which are read one after another.
        known, flat = self._flattened
        if known != name or flat is None:
            flat = bits.reshape(-1)
            self._flattened = name, flat
        return flat


def is_sharded(model: torch.nn.Module | Mapping[str, torch.Tensor]) -> bool:
    """Whether several processes hold the weights of a model together, as DTensors."""
    if not isinstance(model, torch.nn.Module | Mapping):
        raise UsageError(f"a {type(model).__name__} is no model", hint="pass a torch module or its state dict")
    weights = model.parameters() if isinstance(model, torch.nn.Module) else model.values()
    return any(hasattr(weight, "to_local") for weight in weights)


def tensors_of(model: torch.nn.Module | Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of a model or its state dict; those hold other things too: what ``get_extra_state`` returns."""
    named = model.state_dict(keep_vars=True) if isinstance(model, torch.nn.Module) else model
    return {name: value for name, value in named.items() if isinstance(name, str) and isinstance(value, torch.Tensor)}


def located(
    joins: Iterable[Join],
    shapes: Mapping[str, tuple[int, ...]],
    tensors: Mapping[str, torch.Tensor],
    check: Callable[[str, str], None],
    *,
    rank: int,
    hint: str,
) -> Iterator[tuple[str, Held]]:
    """What this process holds of each tensor of a checkpoint, by name; nothing is read.

    Args:
        shapes: of the checkpoint's tensors.
        tensors: the model's.
        check: is given each name of the checkpoint's, and the model's tensor that has it; raises if it does not fit.
        rank: of this process.
        hint: what to do where the model has a tensor in parts.
    """
    for join in joins:
        if len(join.targets) > 1:
            fault = f"the model keeps it in parts: {' and '.join(join.targets)}"
            raise WrongCheckpointError(join.first, fault, hint=hint)
        (target,) = join.targets
        for name in (name for group in join.sources for name in group):
            check(name, target)
        parameter, sharded = tensors[target], hasattr(tensors[target], "to_local")
        model = {target: torch.empty(parameter.shape, device="meta") if sharded else parameter}
        for link in links(join, shapes, model):
            view = link.of_parameter
            yield link.tensor, held(link.tensor, parameter, view) if sharded else whole(view, rank)


def _refuse_surplus(
    module: torch.nn.Module | None, tensors: Mapping[str, torch.Tensor], held_: Mapping[str, Held]
) -> None:
    # A module's buffers can be surplus, such as tables that are computed; its parameters must not: they would be lost.
    known = {item.local.untyped_storage().data_ptr() for item in held_.values()}
    weights = tensors
    if module is not None:
        weights = {name: tensors.get(name, each) for name, each in module.named_parameters(remove_duplicate=False)}
    for name, tensor in weights.items():
        local = local_of(tensor.detach())
        if local.numel() and local.untyped_storage().data_ptr() not in known:
            raise WrongCheckpointError(
                name,
                "a weight of this model that the source lacks, so it would not be published",
                hint="publish without adapters, or begin from a source that has it",
            )
