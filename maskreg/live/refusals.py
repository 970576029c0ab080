"""Models that do not have the tensors of a checkpoint, and so cannot be patched in place: refused by name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from maskreg.checkpoint.renaming import dialect_of
from maskreg.errors import UsageError, WrongCheckpointError
from maskreg.live.naming import bare

_QUANTIZED = ("bitsandbytes", "torchao", "optimum", "gptqmodel", "auto_gptq", "awq", "hqq", "quanto")
"""Packages whose tensors and modules hold quantized weights."""

_MARKS = (
    "qweight", "qzeros", "weight_scale", "weight_scale_inv", "weight_packed", "weight_zero_point", "quant_state", "SCB",
    "_packed_params",
)  # fmt: skip
"""Attributes of modules that hold quantized weights."""

_TO_16_BITS = "load the model in its 16-bit dtype, patch it, and quantize it afterwards"


def refuse_wrapped(module: torch.nn.Module) -> None:
    """Refuse modules whose parameters are elsewhere than where the module shows them."""
    # A model that is wrapped has its wrapper imported.
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")
    for path, each in module.named_modules():
        if fsdp is not None and isinstance(each, fsdp.FullyShardedDataParallel):
            raise UsageError(
                f"{path or 'the model'} is wrapped in FullyShardedDataParallel (FSDP1), which keeps its parameters in"
                " one flat tensor",
                hint="shard with torch.distributed.fsdp.fully_shard (FSDP2), or patch the model before it is wrapped",
            )
    for name, parameter in module.named_parameters():
        if hasattr(parameter, "ds_id") and hasattr(parameter, "ds_status"):
            raise UsageError(
                f"{name} is partitioned by DeepSpeed's ZeRO-3, which leaves a placeholder in the model",
                hint="patch the model before deepspeed.initialize, or under ZeRO-2",
            )


def quantized(name: str, tensors: Mapping[str, torch.Tensor], module: torch.nn.Module | None) -> str | None:
    """What quantizes a tensor, as a class or attribute to name; None if nothing seems to."""
    tensor = tensors.get(name)
    if tensor is not None and _of(type(tensor)):
        return type(tensor).__name__
    owner_name, _, _ = bare(name).rpartition(".")
    owner = _submodule(module, owner_name)
    if owner is not None and _of(type(owner)):
        return type(owner).__name__
    prefix = f"{owner_name}." if owner_name else ""
    names = {bare(each) for each in tensors}
    mark = next((m for m in _MARKS if f"{prefix}{m}" in names or f"{bare(name)}.{m}" in names), None)
    return mark and f"{prefix}{mark}"


def missing_error(
    name: str, expected: Iterable[str], tensors: Iterable[str], *, hint: str, others: str = ""
) -> WrongCheckpointError:
    """The refusal of a model that has not all tensors of a checkpoint."""
    fault = f"missing in this model{others}"
    if found := dialect_of(tensors, expected):
        dialect, sample = found
        return WrongCheckpointError(name, f"{fault}, which has {dialect.names}: {sample}", hint=dialect.loaded)
    return WrongCheckpointError(name, fault, hint=hint)


def quantized_error(name: str, by: str) -> WrongCheckpointError:
    """The refusal of a tensor that ``by`` quantizes."""
    return WrongCheckpointError(
        name, f"quantized in this model ({by}); the delta is between 16-bit values", hint=_TO_16_BITS
    )


def _of(kind: type) -> bool:
    names = [each.__module__ for each in kind.__mro__]
    return any(name.split(".")[0] in _QUANTIZED or name.startswith("torch.ao.") for name in names)


def _submodule(module: torch.nn.Module | None, name: str) -> torch.nn.Module | None:
    if module is None:
        return None
    return next((each for path, each in module.named_modules() if bare(f"{path}.").removesuffix(".") == name), None)
