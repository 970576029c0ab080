"""A run of verl on Ray without GPUs: a trainer of two processes, sharded by FSDP2, and two rollout workers.

python tests/sync/verl_run.py OPTIONS: prints what each sync gave, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM
from verl.checkpoint_engine import CheckpointEngineManager, CheckpointEngineRegistry, CheckpointEngineWorker
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.utils.distributed import initialize_global_process_group_ray
from verl.utils.import_utils import import_external_libs
from verl.workers.config import CheckpointEngineConfig, RolloutConfig
from verl.workers.rollout import BaseRollout
from verl.workers.rollout.utils import ensure_async_iterator

Weights = dict[str, bytes]

everywhere: Any = register(dispatch_mode=Dispatch.ONE_TO_ALL)
beside: Any = register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
one_each: Any = register(dispatch_mode=Dispatch.DP_COMPUTE, blocking=False)


class Trainer(Worker):  # type: ignore[misc]
    """Holds its part of a model, and calls the engine as verl's actor does."""

    def __init__(self, config: CheckpointEngineConfig) -> None:
        super().__init__()
        initialize_global_process_group_ray(timeout_second=None, backend="cpu:gloo")
        import_external_libs(config.custom_backend_module)
        options = config.engine_kwargs[config.backend]
        self.model = AutoModelForCausalLM.from_pretrained(options["source"], dtype=torch.bfloat16)
        fully_shard(self.model, mesh=init_device_mesh("cpu", (self.world_size,)))
        self.engine = CheckpointEngineRegistry.new(config.backend, bucket_size=1, is_master=self.rank == 0, **options)

    @everywhere  # type: ignore[untyped-decorator]
    def train(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.model.parameters():
                shard = parameter.to_local()
                shard.mul_(1 + 0.1 * (torch.rand(shard.shape, generator=generator) < 0.05))

    @everywhere  # type: ignore[untyped-decorator]
    def weights(self) -> Weights:
        return as_bytes(dict(self._whole()))

    @beside  # type: ignore[untyped-decorator]
    async def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> Any:
        return await self.engine.send_weights(self._whole(), global_steps=global_steps)

    @one_each  # type: ignore[untyped-decorator]
    def execute_checkpoint_engine(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.engine, method)(*args, **kwargs)

    def _whole(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in self.model.state_dict().items():
            yield name, tensor.full_tensor()


class Loaded(BaseRollout):  # type: ignore[misc]
    """An engine that keeps what it is handed."""

    replica_rank = 0
    is_leader_rank = True

    def __init__(self) -> None:
        self.weights: Weights = {}

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(self, weights: Any, wire_format: str = "named_tensors", **_: Any) -> None:
        assert wire_format == "named_tensors"
        self.weights = as_bytes({name: tensor.clone() async for name, tensor in ensure_async_iterator(weights)})


class RolloutWorker(CheckpointEngineWorker):  # type: ignore[misc]
    """verl's, and what its engine was handed."""

    def __init__(self, config: RolloutConfig) -> None:
        super().__init__(config, None, Loaded())

    @everywhere  # type: ignore[untyped-decorator]
    def weights(self) -> Any:
        return self.server_adapter.weights


class Replica:
    """Rollout workers of one server, which has no requests."""

    def __init__(self, workers: list[Any]) -> None:
        self.workers = workers

    async def abort_all_requests(self, **_: Any) -> None: ...

    async def release_kv_cache(self) -> None: ...

    async def resume_kv_cache(self) -> None: ...

    async def resume_generation(self) -> None: ...


def as_bytes(weights: dict[str, torch.Tensor]) -> Weights:
    """The bits of each tensor."""
    return {name: tensor.view(torch.uint8).numpy().tobytes() for name, tensor in sorted(weights.items())}


def group(kind: type, count: int, *args: Any) -> RayWorkerGroup:
    """Processes of one kind."""
    pool = RayResourcePool([count], use_gpu=False)
    return RayWorkerGroup(pool, RayClassWithInitArgs(ray.remote(kind), *args), device_name="cpu")


def main(engine: CheckpointEngineConfig, away: Path) -> None:
    """Sync, train and sync again, three times; then once while the remote is away."""
    trainer, rollout = group(Trainer, 2, engine), group(RolloutWorker, 2, RolloutConfig(checkpoint_engine=engine))
    manager = CheckpointEngineManager(engine, trainer, [Replica([worker]) for worker in rollout.workers])
    for step in range(3):
        figures = manager.update_weights(global_steps=step)
        wanted = trainer.weights()[0]
        same = [got.items() <= wanted.items() and sorted(got) for got in rollout.weights()]
        print(json.dumps({"figures": figures, "same": same}), flush=True)
        trainer.train(step)
    away.rename(away.with_suffix(".away"))
    manager.build_process_group(rollout)
    for future in trainer.update_weights() + rollout.update_weights():
        try:
            print(json.dumps(ray.get(future)))
        except ray.exceptions.RayTaskError as error:
            print(json.dumps(error.cause.code))


if __name__ == "__main__":
    ray.init(num_cpus=99, include_dashboard=False)
    main(CheckpointEngineConfig(**json.loads(sys.argv[1])), Path(sys.argv[2]))
    ray.shutdown()
