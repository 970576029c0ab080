"""Checkpoints as real runs leave them behind: one process forks the processes of each world.

``python tests/checkpoint/runs.py FOLDER`` writes, of the same two models::

    source, target                  safetensors, as save_pretrained writes them: the tied head once
    dcp-N/source, dcp-N/target      distributed checkpoints of N processes, an optimizer beside the model
    fsdp-N, hsdp, tensor-parallel   the weights of each process, as verl names the files
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WORLDS = (2, 4)
CONFIG = json.dumps({"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": True})


class Layer(nn.Module):
    """A feed-forward layer whose rows no world size divides."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.ModuleDict({"up_proj": nn.Linear(24, 37, bias=False), "down_proj": nn.Linear(37, 24, bias=False)})
        self.input_layernorm = nn.LayerNorm(24)
        self.register_buffer("seen", torch.arange(5))


class Decoder(nn.Module):
    """Embedding and layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(101, 24)
        self.layers = nn.ModuleList([Layer(), Layer()])


class Model(nn.Module):
    """A language model with a tied head, a buffer in every layer, and a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Decoder()
        self.lm_head = nn.Linear(24, 101, bias=False)
        self.lm_head.weight = self.model.embed_tokens.weight
        self.register_buffer("scale", torch.tensor(2.0))


def model(side: str) -> Model:
    """The same weights in every process."""
    torch.manual_seed(0)
    made = Model().bfloat16()
    if side == "target":
        torch.manual_seed(1)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.mul_(1 + 0.01 * (torch.rand_like(parameter) > 0.7))
    return made


def trained(side: str, shard: Callable[[Model], None]) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A sharded model, and an optimizer that has a state but moved nothing."""
    made = model(side)
    shard(made)
    optimizer = torch.optim.AdamW(made.parameters(), lr=0.0, weight_decay=0.0)
    for parameter in made.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return made, optimizer


def by_layer(**options: object) -> Callable[[Model], None]:
    def shard(made: Model) -> None:
        for layer in made.model.layers:
            fully_shard(layer, **options)  # type: ignore[call-overload]
        fully_shard(made, **options)  # type: ignore[call-overload]

    return shard


def tensor_parallel(made: Model) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for layer in made.model.layers:
        parallelize_module(layer, mesh["tp"], {"mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel()})
    by_layer(mesh=mesh["dp"])(made)


def save_ranks(folder: Path, made: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    (folder / "huggingface").mkdir(parents=True, exist_ok=True)
    if rank == 0:
        (folder / "huggingface" / "config.json").write_text(CONFIG)
        (folder / "fsdp_config.json").write_text("{}")
    torch.save(made.state_dict(), folder / f"model_world_size_{world}_rank_{rank}.pt")
    torch.save(optimizer.state_dict(), folder / f"optim_world_size_{world}_rank_{rank}.pt")


def save(folder: Path, world: int) -> None:
    """What each process of a world saves."""
    for side in ("source", "target"):
        made, optimizer = trained(side, by_layer())
        state = {"model": made.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}
        save_distributed(state, checkpoint_id=folder / f"dcp-{world}" / side)
        if dist.get_rank() == 0:
            (folder / f"dcp-{world}" / side / "config.json").write_text(CONFIG)
    save_ranks(folder / f"fsdp-{world}", made, optimizer)
    if world == 4:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("ddp", "fsdp"))
        save_ranks(folder / "hsdp", *trained("target", by_layer(mesh=mesh)))
        save_ranks(folder / "tensor-parallel", *trained("target", tensor_parallel))


def run(folder: Path, world: int, rank: int) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{world}", rank=rank, world_size=world)
    save(folder, world)
    dist.barrier()
    dist.destroy_process_group()


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    for side in ("source", "target"):
        (folder / side).mkdir(parents=True)
        state = {name: tensor for name, tensor in model(side).state_dict().items() if name != "lm_head.weight"}
        save_file(state, folder / side / "model.safetensors", {"format": "pt"})
        (folder / side / "config.json").write_text(CONFIG)
    children = []
    for world in WORLDS:
        for rank in range(world):
            if child := os.fork():
                children.append(child)
            else:
                run(folder, world, rank)
                os._exit(0)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert not any(codes), codes


if __name__ == "__main__":
    main(Path(sys.argv[1]))
