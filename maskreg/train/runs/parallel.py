"""The processes of one run: how many there are, which this one is, and how they share a model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist

from maskreg.errors import ConfigError


@dataclass(frozen=True)
class World:
    """All processes of a run.

    Attributes:
        rank: which one this is.
        size: how many there are.
        device: where this one computes.
    """

    rank: int
    size: int
    device: torch.device

    @classmethod
    def join(cls, device: str) -> World:
        """Meet the processes that torchrun started with this one; without it there is just this one.

        Raises:
            ConfigError: there is no such device.
        """
        if device == "cuda" and not torch.cuda.is_available():
            raise ConfigError("no CUDA device can be used here", hint="add --device cpu")
        if "RANK" not in os.environ:
            return cls(0, 1, torch.device(device))
        here = torch.device(device)
        if device == "cuda":
            here = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(here)
        if not dist.is_initialized():
            dist.init_process_group("nccl" if device == "cuda" else "gloo")
        return cls(dist.get_rank(), dist.get_world_size(), here)

    def leave(self) -> None:
        """Take leave of the others."""
        if dist.is_initialized():
            dist.destroy_process_group()

    @property
    def first(self) -> bool:
        """Whether this process writes what only one may write."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Sums over all processes, in fp64, the same everywhere."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        found: list[float] = total.tolist()
        return found

    def any_of(self, here: bool) -> bool:
        """Whether something holds in any process."""
        return here if self.size == 1 else self.sum(float(here))[0] > 0

    def meet(self) -> None:
        """Wait until all are here."""
        if self.size > 1:
            dist.barrier()


def spread(model: torch.nn.Module, how: Literal["fsdp", "ddp"], world: World) -> torch.nn.Module:
    """Share a model with the other processes: sharded by ``fsdp``, copied by ``ddp``; itself where there are none."""
    if world.size == 1:
        return model.to(world.device)
    if how == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model.to(world.device))
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(world.device.type, (world.size,))
    blocks = set(getattr(model, "_no_split_modules", None) or ())
    for module in model.modules():
        if type(module).__name__ in blocks:
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model.to(world.device)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor that may be sharded; every process takes part."""
    full = getattr(tensor, "full_tensor", None)
    gathered: torch.Tensor = tensor if full is None else full()
    return gathered


def fill(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Copy values into a tensor that may be sharded; every process has all of them."""
    mesh = getattr(tensor, "device_mesh", None)
    if mesh is not None:
        from torch.distributed.tensor import distribute_tensor

        values = distribute_tensor(values.to(tensor.device), mesh, tensor.placements, src_data_rank=None)  # type: ignore[attr-defined]
    tensor.copy_(values)


def without_exchange(model: torch.nn.Module, wanted: bool) -> AbstractContextManager[object]:
    """Let gradients of a copied model stay where they are until a later backward pass."""
    if wanted and isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return model.no_sync()
    return nullcontext()


def parts(indices: Sequence[int], world: World, size: int) -> list[list[int]]:
    """This process's share of a step's records, in micro-batches of at most ``size``."""
    mine = list(indices[world.rank :: world.size])
    return [mine[start : start + size] for start in range(0, len(mine), size)]
