"""A run of verl on Ray without GPUs: a trainer of two processes, sharded by FSDP2, and two of verl's servers of vLLM.

python tests/sync/verl_run.py OPTIONS: prints what each sync gave, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
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
from verl.workers.config import CheckpointEngineConfig, HFModelConfig, RolloutConfig
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica

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


class Server(vLLMHttpServer):  # type: ignore[misc]
    """verl 0.9.1's, which is made for vLLM 0.24; later ones call the argument of a pause otherwise."""

    async def run_server(self, args: Any) -> None:
        await super().run_server(args)
        pause = self.engine.pause_generation

        def pause_generation(*, wait_for_inflight_requests: bool, **how: Any) -> Any:
            return pause(mode="wait" if wait_for_inflight_requests else "abort", **how)

        self.engine.pause_generation = pause_generation


class Replica(vLLMReplica):  # type: ignore[misc]
    """verl's, of one server with one worker."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.server_class = ray.remote(Server)

    def weights(self, folder: Path) -> Weights:
        """The weights that vLLM has, by its names."""
        path = folder / f"kept-{self.replica_rank}.pt"
        ray.get(self.server_handle.collective_rpc.remote("keep", args=(str(path),)))
        return as_bytes(torch.load(path))

    def log_probabilities(self) -> tuple[list[float], int]:
        """Of what it generates, and the step that verl says its weights are of."""
        how = {"temperature": 0.0, "logprobs": True, "max_tokens": 6}
        output = ray.get(self.server_handle.generate.remote([2, 3, 4], how, uuid.uuid4().hex))
        return output.log_probs, output.extra_fields["global_steps"]


FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


def found(kept: Weights, wanted: Weights) -> list[str]:
    """The names of the weights that vLLM has as they are wanted; it fuses some, and pads the vocabulary."""
    names = []
    for name, bits in kept.items():
        fused = next((fused for fused in FUSED if fused in name), "")
        own = [name.replace(fused, part) for part in FUSED.get(fused, ("",))]
        if bits.startswith(b"".join(wanted[each] for each in own)):
            names += own
    return sorted(names)


def as_bytes(weights: dict[str, torch.Tensor]) -> Weights:
    """The bits of each tensor."""
    return {name: tensor.view(torch.uint8).numpy().tobytes() for name, tensor in sorted(weights.items())}


def group(kind: type, count: int, *args: Any) -> RayWorkerGroup:
    """Processes of one kind."""
    pool = RayResourcePool([count], use_gpu=False)
    return RayWorkerGroup(pool, RayClassWithInitArgs(ray.remote(kind), *args), device_name="cpu")


async def started(engine: CheckpointEngineConfig, count: int) -> list[Replica]:
    """Servers of their own, which begin with random weights."""
    config = RolloutConfig(
        name="vllm",
        checkpoint_engine=engine,
        engine_kwargs={"vllm": {"worker_extension_cls": "tests.sync.verl_worker.Extension"}},
        tensor_model_parallel_size=1,
        enforce_eager=True,
        enable_sleep_mode=False,
        free_cache_engine=False,
        max_model_len=64,
        max_num_seqs=4,
        max_num_batched_tokens=64,
    )
    model = HFModelConfig(path=engine.engine_kwargs[engine.backend]["source"])
    replicas = [Replica(rank, config, model, gpus_per_node=1) for rank in range(count)]
    await asyncio.gather(*(replica.init_standalone() for replica in replicas))
    return replicas


def main(engine: CheckpointEngineConfig, away: Path) -> None:
    """Sync, train and sync again, three times; then once while the remote is away."""
    trainer = group(Trainer, 2, engine)
    replicas = asyncio.run(started(engine, 2))
    manager = CheckpointEngineManager(engine, trainer, replicas)
    for step in range(3):
        figures = manager.update_weights(global_steps=step)
        wanted = trainer.weights()[0]
        same = [found(replica.weights(away.parent), wanted) for replica in replicas]
        generated = [replica.log_probabilities() for replica in replicas]
        print(json.dumps({"figures": figures, "same": same, "generated": generated}), flush=True)
        trainer.train(step)
    away.rename(away.with_suffix(".away"))
    workers = [worker for replica in replicas for worker in replica.workers]
    init = RayClassWithInitArgs(ray.remote(CheckpointEngineWorker))
    rollout = RayWorkerGroup(worker_handles=workers, ray_cls_with_init=init)
    manager.build_process_group(rollout)
    for future in trainer.update_weights() + rollout.update_weights():
        try:
            print(json.dumps(ray.get(future)))
        except ray.exceptions.RayTaskError as error:
            print(json.dumps(error.cause.code))


if __name__ == "__main__":
    ray.init(num_cpus=99, num_gpus=2, include_dashboard=False, log_to_driver=False)
    main(CheckpointEngineConfig(**json.loads(sys.argv[1])), Path(sys.argv[2]))
    ray.shutdown()
