"""Parameters, gradients and wrappers that cannot be masked: rejected by name, with what to use instead."""

from __future__ import annotations

import torch

from maskreg.errors import UsageError

_WITHOUT_DEEPSPEED = "train without DeepSpeed; FSDP2 shards too: fully_shard(model), or fsdp_version: 2 in Accelerate"


def refuse_foreign(name: str, parameter: torch.Tensor) -> None:
    """Reject a parameter whose coordinates do not match the checkpoint's tensor."""
    if getattr(parameter, "_is_flat_param", False) or getattr(parameter, "_fsdp_flattened", False):
        raise UsageError(
            f"{name} is a FlatParameter of FSDP1, or a view of one, which hides where tensors begin",
            hint="use FSDP2: fully_shard(model); fsdp_version: 2 in Accelerate; strategy=fsdp2 in verl",
        )
    if hasattr(parameter, "ds_id") or getattr(parameter, "_hp_mapping", None) is not None:
        raise UsageError(f"{name} is DeepSpeed's, which updates flat copies of its own", hint=_WITHOUT_DEEPSPEED)
    if parameter.is_complex():
        raise UsageError(
            f"{name} is complex, and steps are taken in real numbers",
            hint="make the parameter torch.view_as_real(value), or train it with another optimizer",
        )
    if parameter.is_meta:
        raise UsageError(
            f"{name} is on the meta device, without values", hint="load the model's weights before the first step"
        )


def refuse_sparse(name: str, grad: torch.Tensor) -> None:
    """Reject sparse gradients."""
    if grad.layout != torch.strided:
        raise UsageError(f"the gradient of {name} is sparse", hint="nn.Embedding(..., sparse=False)")


def refuse_fewer(given: int, present: int) -> None:
    """Reject groups in which a framework has merged parameters."""
    if present < given:
        raise UsageError(
            f"{given} parameters were merged into {present}, as DeepSpeed's ZeRO and FSDP1 do", hint=_WITHOUT_DEEPSPEED
        )


def refuse_replicas(module: torch.nn.Module, mode: str) -> None:
    """Reject DistributedDataParallel where gradients are consumed as soon as they are ready."""
    if any(isinstance(inner, torch.nn.parallel.DistributedDataParallel) for inner in module.modules()):
        raise UsageError(
            f'gradients="{mode}" consumes gradients before DistributedDataParallel has averaged them',
            hint='gradients="dense", or shard the model with fully_shard(model) instead of DistributedDataParallel',
        )
