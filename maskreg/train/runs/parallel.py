"""The processes of a run, and how they share a model and its data."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, NoReturn

import torch
import torch.distributed as dist

from maskreg.errors import ConfigError


@dataclass(frozen=True)
class World:
    """All processes of a run.

    Attributes:
        rank: number of this process.
        size: number of processes.
        device: where this process computes.
    """

    rank: int
    size: int
    device: torch.device

    @classmethod
    def join(cls, device: str) -> World:
        """Join the process group that torchrun describes in the environment; without it, a world of one process."""
        if device == "cuda" and not torch.cuda.is_available():
            raise ConfigError("no CUDA device is available", hint="add --device cpu")
        if "RANK" not in os.environ:
            return cls(0, 1, torch.device(device))
        local = torch.device(device)
        if device == "cuda":
            local = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(local)
        if not dist.is_initialized():
            dist.init_process_group("nccl" if device == "cuda" else "gloo")
        return cls(dist.get_rank(), dist.get_world_size(), local)

    def leave(self) -> None:
        """Destroy the process group."""
        if dist.is_initialized():
            dist.destroy_process_group()

    @property
    def is_first(self) -> bool:
        """Whether this process does what only one may do, such as writing files."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Sums over all processes, in fp64, the same in each."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        sums: list[float] = total.tolist()
        return sums

    def any_of(self, condition: bool) -> bool:
        """Whether a condition holds in any process."""
        return condition if self.size == 1 else self.sum(float(condition))[0] > 0

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            dist.barrier()


def end_process(code: int) -> NoReturn:
    """End this process, one of several, without shutting the interpreter down.

    A thread of Gloo that still lets go of the last message's tensors, while the interpreter shuts down, aborts the
    process (SIGABRT), even after :func:`torch.distributed.destroy_process_group`: a run that is complete would fail.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def distribute(model: torch.nn.Module, mode: Literal["fsdp", "ddp"], world: World) -> torch.nn.Module:
    """Shard a model over all processes (``fsdp``), or replicate it (``ddp``); a single process only moves it."""
    if world.size == 1:
        return model.to(world.device)
    if mode == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model.to(world.device))
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(world.device.type, (world.size,))
    layers = set(getattr(model, "_no_split_modules", None) or ())
    for module in model.modules():
        if type(module).__name__ in layers:
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model.to(world.device)


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor that may be sharded; a collective call."""
    gather = getattr(tensor, "full_tensor", None)
    full: torch.Tensor = tensor if gather is None else gather()
    return full


def assign(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Copy values into a tensor that may be sharded; a collective call with all values in every process."""
    mesh = getattr(tensor, "device_mesh", None)
    if mesh is not None:
        from torch.distributed.tensor import distribute_tensor

        values = distribute_tensor(values.to(tensor.device), mesh, tensor.placements, src_data_rank=None)  # type: ignore[attr-defined]
    tensor.copy_(values)


def gradient_sync(model: torch.nn.Module, *, enabled: bool) -> AbstractContextManager[object]:
    """Whether a replicated model averages gradients over processes in the backward pass, or in a later one."""
    if not enabled and isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return model.no_sync()
    return nullcontext()


def micro_batches(indices: Sequence[int], world: World, size: int) -> list[list[int]]:
    """This process's share of a step's records, at most ``size`` at a time."""
    own = list(indices[world.rank :: world.size])
    return [own[start : start + size] for start in range(0, len(own), size)]
