"""Whole tensors into a model of vLLM that serves, so that it is what it would be had it been started from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from maskreg.checkpoint.safetensors import SafetensorsCheckpoint
from maskreg.errors import UsageError
from maskreg.live.memory import CODES, DTYPES, NAMES
from maskreg.tensors.info import FLOAT

if TYPE_CHECKING:
    from maskreg.checkpoint import Checkpoint


def tensors_of(checkpoint: Checkpoint) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of a checkpoint by name, in host memory, one after another; safetensors files are mapped."""
    path = checkpoint.path
    if isinstance(checkpoint, SafetensorsCheckpoint) and isinstance(path, Path):
        folder = path if path.is_dir() else path.parent
        for shard in checkpoint.shards:
            with safe_open(folder / shard.file_name, "pt") as file:
                yield from ((info.name, file.get_tensor(info.name)) for info in shard.tensors)
        return
    for name, info in checkpoint.tensors.items():
        bits = torch.from_numpy(checkpoint.read(name, 0, info.numel).view(f"i{info.item_bytes}"))
        yield name, bits.view(CODES[info.item_bytes]).view(DTYPES[info.dtype]).reshape(info.shape)


def check_served(checkpoint: Checkpoint, model_config: Any) -> None:
    """Refuse a model that is not served in the bits of its checkpoint.

    Raises:
        UsageError: it is quantized, or served in another dtype.
    """
    stored = {info.dtype for info in checkpoint.tensors.values()}
    if model_config.quantization is not None or not stored <= DTYPES.keys():
        how = model_config.quantization or ", ".join(sorted(stored - DTYPES.keys()))
        raise UsageError(
            f"the model is served quantized ({how}), and links are between unquantized weights",
            hint="serve the unquantized checkpoint that the run began from",
        )
    if NAMES[model_config.dtype] not in stored & FLOAT:
        wanted = ", ".join(sorted(stored & FLOAT))
        raise UsageError(
            f"the model is served in {NAMES[model_config.dtype]}, and its checkpoint is in {wanted}",
            hint="start the server with --dtype auto",
        )


def load_weights(model: torch.nn.Module, model_config: Any, checkpoint: Checkpoint) -> None:
    """Load all tensors of a checkpoint into a model that serves; its parameters stay where they are in memory."""
    initialize_layerwise_reload(model)
    try:
        model.load_weights(tensors_of(checkpoint))  # type: ignore[operator]
    finally:
        finalize_layerwise_reload(model, model_config)
    _process_tied(model)


def _process_tied(model: torch.nn.Module) -> None:
    """Process layers again whose parameter another layer has loaded, such as a tied head.

    The reload leaves them out, and what they made of the parameter when the server started, as packed copies, is old.
    """
    owners: dict[int, torch.nn.Module] = {}
    for layer in model.modules():
        method = getattr(layer, "quant_method", None)
        own = [owners.setdefault(id(parameter), layer) is layer for parameter in layer.parameters(recurse=False)]
        if not all(own) and isinstance(method, QuantizeMethodBase):
            method.process_weights_after_loading(layer)
