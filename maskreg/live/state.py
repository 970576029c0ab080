"""The weights of a model in memory, read like a checkpoint: under the names and in the layout of one on a disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from maskreg.bucket import Location
from maskreg.checkpoint.base import Checkpoint
from maskreg.errors import WrongCheckpointError
from maskreg.live.layout import links
from maskreg.live.memory import CODES, NAMES
from maskreg.live.naming import find, missing_error
from maskreg.tensors.info import TensorInfo

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.checkpoint.base import Memory


class ModelState(Checkpoint):
    """The weights of a running model, as the tensors of a checkpoint. Fused and stacked parameters are read apart.

    Nothing is copied but the span that is read. The model must not change while it is read.
    """

    def __init__(
        self,
        model: torch.nn.Module | Mapping[str, torch.Tensor],
        expected: Mapping[str, TensorInfo],
        small_files: Mapping[str, Location] | None = None,
        *,
        tensors: Mapping[str, torch.Tensor] | None = None,
        allow_surplus: bool = False,
    ) -> None:
        """Find every tensor of a checkpoint in a module or its state dict, whatever wraps it; dtypes are the model's.

        ``tensors``: the model's, by name, where the model itself holds a part of each only.
        """
        self.format = "safetensors"
        self.path = Path()
        self._small_files = small_files or {}
        module = model if isinstance(model, torch.nn.Module) else None
        if tensors is None:
            named = (model.state_dict(keep_vars=True) if isinstance(model, torch.nn.Module) else model).items()
            tensors = {name: value for name, value in named if isinstance(value, torch.Tensor)}
        self._views = dict(_views(expected, tensors, module))
        if not allow_surplus:
            _refuse_surplus(module, tensors, self._views)
        self.tensors = {
            name: TensorInfo(name, NAMES[self._views[name].dtype], info.shape) for name, info in expected.items()
        }
        self._whole: tuple[str, torch.Tensor | None] = "", None

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements of a tensor, copied from its device if that is not the CPU."""
        info = self.tensors[name]
        if not 0 <= start <= stop <= info.numel:
            raise ValueError(f"{name}: elements {start} to {stop} of {info.numel}")
        span = self._flat(name)[start:stop].cpu().numpy()
        return span.view(np.dtype(f"<u{info.item_bytes}"))

    def small_files(self) -> Mapping[str, Location]:
        """Small files of the checkpoint that names come from."""
        return self._small_files

    def close(self) -> None:
        """Nothing: the model belongs to its owner."""

    def _flat(self, name: str) -> torch.Tensor:
        view = self._views[name]
        bits = view.detach().view(CODES[view.element_size()])
        if bits.is_contiguous():
            return bits.reshape(-1)
        # One copy for all blocks of a tensor, which are read one after another.
        known, whole = self._whole
        if known != name or whole is None:
            whole = bits.reshape(-1)
            self._whole = name, whole
        return whole


def is_sharded(model: torch.nn.Module | Mapping[str, torch.Tensor]) -> bool:
    """Whether several processes hold the weights of a model together, as DTensors."""
    weights = model.parameters() if isinstance(model, torch.nn.Module) else model.values()
    return any(hasattr(weight, "to_local") for weight in weights)


def _views(
    expected: Mapping[str, TensorInfo], tensors: Mapping[str, torch.Tensor], module: torch.nn.Module | None
) -> Iterator[tuple[str, torch.Tensor]]:
    matches = find(expected, tensors, module)
    if absent := matches.missing + matches.ignored:
        raise missing_error(absent[0], expected, tensors, hint="this is the model of another checkpoint")
    for join in matches.joins:
        if len(join.targets) > 1:
            parts = " and ".join(join.targets)
            raise WrongCheckpointError(join.first, f"the model keeps it in parts: {parts}", hint="publish a checkpoint")
        shapes = {name: expected[name].shape for group in join.sources for name in group}
        for link in links(join, shapes, tensors):
            view = link.of_parameter
            if view.is_meta or hasattr(view, "to_local") or view.layout is not torch.strided:
                state = "on the meta device" if view.is_meta else "sharded over processes or sparse"
                hint = "load it first" if view.is_meta else "call Publisher.publish_sharded in all processes"
                raise WrongCheckpointError(link.tensor, f"its data is {state}", hint=hint)
            if view.dtype not in NAMES:
                raise WrongCheckpointError(link.tensor, f"{view.dtype} in this model, which no checkpoint holds")
            yield link.tensor, view


def _refuse_surplus(
    module: torch.nn.Module | None, tensors: Mapping[str, torch.Tensor], views: Mapping[str, torch.Tensor]
) -> None:
    # A module's buffers may be surplus, such as tables that are computed; its parameters may not: they would be lost.
    known = {view.untyped_storage().data_ptr() for view in views.values()}
    weights = tensors
    if module is not None:
        weights = {name: tensors.get(name, each) for name, each in module.named_parameters(remove_duplicate=False)}
    for name, tensor in weights.items():
        if tensor.numel() and tensor.untyped_storage().data_ptr() not in known:
            raise WrongCheckpointError(
                name,
                "a weight of this model that the source lacks, so it would not be published",
                hint="publish without adapters, or begin from a source that has it",
            )
