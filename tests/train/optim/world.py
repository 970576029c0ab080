"""Processes that share a model: ``python tests/train/optim/world.py FOLDER`` runs the checks of every world in turn.

One process forks the others; each writes down which checks held. Gradients come from seeded whole
tensors, so that they are the same in any number of processes, and so must be every bit of what is trained with them.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

from maskreg.live.shards import indexes_of
from maskreg.mask.packed import TensorMask, pack
from maskreg.train import MaskedAdamW
from maskreg.train.optim import MaskedOptimizer

SHAPES = {"wide": (5, 7), "tall": (130, 31), "one": (1,), "odd": (3,), "even": (4, 12), "cube": (2, 12, 35)}
"""Odd widths; fewer rows than processes; dimensions that 1, 2, 3 and 4 divide."""

ADAMW: dict[str, Any] = {"lr": 1e-2, "weight_decay": 0.1}
SAVED_AT = 3
IN_ALL = 6


class Net(torch.nn.Module):
    def __init__(self, dtype: torch.dtype = torch.bfloat16, seed: int = 1) -> None:
        super().__init__()
        torch.manual_seed(seed)
        for name, shape in SHAPES.items():
            self.register_parameter(name, torch.nn.Parameter(torch.randn(shape).to(dtype)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([(p * x).sin().float().sum() for p in self.parameters()]).sum()


def masks(density: float = 0.4, seed: int = 0) -> dict[str, TensorMask]:
    drawn = np.random.default_rng(seed)
    return {name: TensorMask(name, shape, pack(drawn.random(shape) < density)) for name, shape in SHAPES.items()}


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def weights(net: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name.removeprefix("module."): whole(p) for name, p in net.named_parameters()}


def placed_like(p: DTensor, full: torch.Tensor) -> torch.Tensor:
    mesh, placements = p.device_mesh, p.placements
    if not any(isinstance(placement, _StridedShard) for placement in placements):
        return distribute_tensor(full, mesh, placements)
    own = indexes_of(p.shape, mesh, placements, mesh.get_coordinate() or ())
    local = full[np.ix_(*own)]
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=p.shape, stride=p.stride())


def put_gradients(net: torch.nn.Module, seed: int) -> None:
    """Add the seed's gradients to those that are there."""
    drawn = torch.Generator().manual_seed(seed)
    for p in net.parameters():
        full = torch.randn(p.shape, generator=drawn).to(p.dtype)
        here = placed_like(p, full) if isinstance(p, DTensor) else full
        p.grad = here if p.grad is None else p.grad + here


def train(net: torch.nn.Module, optimizer: MaskedOptimizer, first: int = 0, last: int = IN_ALL) -> None:
    """Steps of two gradients each, with a learning rate that falls."""
    for step in range(first, last):
        for group in optimizer.param_groups:
            group["lr"] = ADAMW["lr"] / (1 + step)
        put_gradients(net, 10 + step)
        put_gradients(net, 110 + step)
        optimizer.step()
        optimizer.zero_grad()


def make(net: torch.nn.Module, **options: Any) -> MaskedAdamW:
    return MaskedAdamW(net.named_parameters(), mask=masks(), **{"max_grad_norm": 1.0, **ADAMW, **options})


@cache
def alone(steps: int = IN_ALL, dtype: torch.dtype = torch.bfloat16, **options: Any) -> tuple[Net, MaskedAdamW]:
    """The same run without other processes; nothing changes it afterwards."""
    net = Net(dtype)
    optimizer = make(net, **options)
    train(net, optimizer, 0, steps)
    return net, optimizer


def same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys(), (found.keys(), expected.keys())
    for name, one in expected.items():
        assert found[name].dtype == one.dtype, name
        assert torch.equal(found[name], one), name


def same_state(found: dict[Any, Any], expected: dict[Any, Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found.values(), expected.values(), strict=True):
        same({key: whole(value) for key, value in one.items()}, other)


def frozen_kept(net: torch.nn.Module, dtype: torch.dtype = torch.bfloat16) -> None:
    before, mask, moved = weights(Net(dtype)), masks(), 0
    for name, now in weights(net).items():
        inside = torch.from_numpy(mask[name].to_bool())
        assert torch.equal(now[~inside], before[name][~inside]), name
        moved += int((now != before[name]).sum())
    assert moved


def as_alone(net: torch.nn.Module, optimizer: MaskedAdamW, dtype: torch.dtype = torch.bfloat16, **options: Any) -> None:
    """One process alone gives the same weights, norm and state."""
    expected, reference = alone(dtype=dtype, **options)
    same(weights(net), weights(expected))
    frozen_kept(net, dtype)
    assert optimizer.grad_norm is not None and torch.equal(optimizer.grad_norm, reference.grad_norm)  # type: ignore[arg-type]
    same_state(optimizer.state_dict()["state"], reference.state_dict()["state"])


def second_dimension(p: torch.nn.Parameter) -> Shard | None:
    return Shard(1) if tuple(p.shape) in (SHAPES["even"], SHAPES["cube"]) else None


def sharded(dtype: torch.dtype = torch.bfloat16, mesh: DeviceMesh | None = None, **options: Any) -> Net:
    """Over the first dimension, and some over the second."""
    net = Net(dtype)
    fully_shard(net, mesh=mesh, shard_placement_fn=second_dimension, **options)
    return net


@contextmanager
def processes(rank: int, world: int, meet: Path) -> Iterator[None]:
    dist.init_process_group("gloo", f"file://{meet}", rank=rank, world_size=world, timeout=timedelta(seconds=60))
    try:
        yield
    finally:
        dist.destroy_process_group()


def mesh(*shape: int) -> DeviceMesh:
    return init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])


def check(rank: int, world: int, folder: Path, name: str, checks: dict[str, Callable[[Path], None]]) -> None:
    """Run the checks in one process of a world."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    with (folder / f"said-{name}-{rank}.txt").open("wb") as said:
        os.dup2(said.fileno(), 2)
    held: list[str] = []
    with processes(rank, world, folder / f"meet-{name}"):
        for one, run in checks.items():
            run(folder)
            held.append(one)
            (folder / f"held-{name}-{rank}.json").write_text(json.dumps(held))


def main(folder: Path) -> None:
    """Run the worlds, one after another."""
    from tests.train.optim import sharing, sharing_loops

    # Once for all worlds.
    alone()

    torch.set_num_threads(1)
    known = {**vars(sharing), **vars(sharing_loops)}
    for name, checks in json.loads((folder / "checks.json").read_text()).items():
        children = []
        for rank in range(world := int(name.partition(" ")[0])):
            if child := os.fork():
                children.append(child)
                continue
            try:
                check(rank, world, folder, name, {one: known[one] for one in checks})
            except BaseException:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(0)
        for child in children:
            os.waitpid(child, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
