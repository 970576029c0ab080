"""Main memory of masked training over shards: ``torchrun --nproc-per-node 2 -m scripts.bench.shards``.

A random Qwen3 of 91 M bf16 parameters is loaded in shards, trained on a mask of 40 %, saved in two ways, and its result
stored without gathering it. Bytes per parameter of the model, of anonymous memory that a stage takes at most beyond
what was there before it, in the first process, and in the one that takes most. Large buffers go back to the system when
they are freed, so that no stage uses what an earlier one has left. A small model goes through all stages before, so
that imported code does not count.
"""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict_saver import save as save_parts
from transformers import AutoModelForCausalLM, Qwen3Config
from transformers.distributed import DistributedConfig

import maskreg
from maskreg.train import MaskedAdamW, save_model

DENSITY = 0.4
STEPS = 20
M_MMAP_THRESHOLD = -3  # of mallopt
LARGE = {"vocab_size": 34720, "hidden_size": 640, "intermediate_size": 1920, "num_hidden_layers": 14}
SMALL = LARGE | {"vocab_size": 256, "num_hidden_layers": 1}


def anonymous() -> int:
    """Anonymous resident memory of this process in bytes."""
    with Path("/proc/self/status").open() as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))


class Stages:
    """Prints what each stage takes, of a model with so many parameters; silent without."""

    def __init__(self, parameters: int = 0) -> None:
        self._parameters = parameters

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Watch what is done inside."""
        gc.collect()
        before = most = anonymous()
        done = threading.Event()

        def watch() -> None:
            nonlocal most
            while not done.wait(0.001):
                most = max(most, anonymous())

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            yield
        finally:
            done.set()
            watching.join()
        figures: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(figures, (max(most, anonymous()) - before) / max(1, self._parameters))
        if self._parameters and not dist.get_rank():
            print(f"{name:<28} {figures[0]:6.2f} {max(figures):6.2f}", flush=True)


def make(folder: Path, sizes: dict[str, int], name: str) -> None:
    """A source, and a mask that moves it at random, under a name."""
    torch.manual_seed(0)
    config = Qwen3Config(num_attention_heads=10, num_key_value_heads=5, head_dim=64, tie_word_embeddings=True, **sizes)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder / "source")
    shutil.copytree(folder / "source", folder / "target")
    weights = load_file(folder / "target" / "model.safetensors")
    for weight in weights.values():
        weight.view(torch.int16)[torch.rand(weight.shape) < DENSITY] += 1
    save_file(weights, folder / "target" / "model.safetensors", metadata={"format": "pt"})
    maskreg.extract(folder / "source", folder / "target", name=name)


def go(folder: Path, name: str, stages: Stages) -> None:
    """Go through all stages."""
    world = dist.get_world_size()
    with stages.stage("load, shard, bind the mask"):
        model = AutoModelForCausalLM.from_pretrained(
            folder / "source", dtype=torch.bfloat16, distributed_config=DistributedConfig(fsdp_size=world)
        )
        optimizer = MaskedAdamW(model.named_parameters(), lr=1e-4, mask=name, gradients="packed")
    with stages.stage(f"{STEPS} steps"):
        for _ in range(STEPS):
            tokens = torch.randint(0, 256, (1, 64))
            model(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    with stages.stage("save_model"):
        save_model(model, folder / "source", folder / "saved")
    with stages.stage("transformers' save_pretrained"):
        model.save_pretrained(folder / "gathered")
    with stages.stage("save model and state (DCP)"):
        weights, state = get_state_dict(model, optimizer)
        save_parts({"model": weights, "optimizer": state}, checkpoint_id=folder / "state")
        del weights, state
    with stages.stage("extract_result, its mask"):
        maskreg.extract_result(model, name, name=f"{name}-result")
    with stages.stage("extract_result, no mask"):
        maskreg.extract_result(model, source=folder / "source", name=f"{name}-again")


def main() -> None:
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 20)
    dist.init_process_group("gloo")
    is_first = not dist.get_rank()
    shared: list[Any] = [tempfile.mkdtemp() if is_first else None]
    dist.broadcast_object_list(shared)
    folder = Path(shared[0])
    os.environ["MASKREG_HOME"] = str(folder / "home")
    try:
        for name, sizes in (("lab/small", SMALL), ("lab/large", LARGE)):
            if is_first:
                make(folder / name, sizes, name)
            dist.barrier()
            go(folder / name, name, Stages(91_053_952 if sizes is LARGE else 0))
    finally:
        dist.barrier()
        if is_first:
            shutil.rmtree(folder)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
