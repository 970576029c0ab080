"""What masks cannot be laid over: refused by name, with what to do instead."""

from __future__ import annotations

import torch

from maskreg.errors import UsageError

_WITHOUT_DEEPSPEED = "train without DeepSpeed; FSDP2 shards too: fully_shard(model), or fsdp_version: 2 in Accelerate"


def refuse_foreign(name: str, parameter: torch.Tensor) -> None:
    """Say no to a parameter that is not what the checkpoint's tensor is.

    Args:
        name: for messages.
        parameter: of the model.

    Raises:
        UsageError: it is one of FSDP1's, of DeepSpeed's, or not there yet.
    """
    if getattr(parameter, "_is_flat_param", False) or getattr(parameter, "_fsdp_flattened", False):
        raise UsageError(
            f"{name} is a FlatParameter, or a view of one, in which FSDP1 hides where tensors begin",
            hint="use FSDP2: fully_shard(model); fsdp_version: 2 in Accelerate; strategy=fsdp2 in verl",
        )
    if hasattr(parameter, "ds_id") or getattr(parameter, "_hp_mapping", None) is not None:
        raise UsageError(f"{name} is DeepSpeed's, which steps on flat copies of its own", hint=_WITHOUT_DEEPSPEED)
    if parameter.is_meta:
        raise UsageError(
            f"{name} is on the meta device, without values", hint="load the model's weights before the first step"
        )


def refuse_sparse(name: str, grad: torch.Tensor) -> None:
    """Say no to a gradient of few rows, which masks are not laid over.

    Args:
        name: for messages.
        grad: of a parameter.

    Raises:
        UsageError: it is sparse.
    """
    if grad.layout != torch.strided:
        raise UsageError(f"the gradient of {name} is sparse", hint="nn.Embedding(..., sparse=False)")


def refuse_fewer(known: int, now: int) -> None:
    """Say no to a framework that has put other parameters into the groups.

    Args:
        known: how many parameters the optimizer was given.
        now: how many it has.

    Raises:
        UsageError: there are fewer.
    """
    if now < known:
        raise UsageError(
            f"{known} parameters were put together to {now}, as DeepSpeed's ZeRO and FSDP1 do", hint=_WITHOUT_DEEPSPEED
        )


def refuse_replicas(module: torch.nn.Module, gradients: str) -> None:
    """Say no to DistributedDataParallel where gradients are taken as soon as they are there.

    Args:
        module: the model, or what wraps it.
        gradients: how the optimizer takes them, for the message.

    Raises:
        UsageError: the model has a DistributedDataParallel in it, which averages gradients after that.
    """
    if any(isinstance(one, torch.nn.parallel.DistributedDataParallel) for one in module.modules()):
        raise UsageError(
            f'gradients="{gradients}" takes gradients before DistributedDataParallel has averaged them',
            hint='gradients="dense", or shard the model with fully_shard(model) in place of DistributedDataParallel',
        )
