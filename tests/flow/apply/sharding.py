"""Run by torchrun in several processes: models sharded in every way are patched; writes what came out as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from transformers import AutoModelForCausalLM
from transformers.utils import logging

import maskreg
from maskreg import apply_, switch_
from maskreg.artifact import arrays, layout
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import open_checkpoint
from maskreg.flow.apply import in_memory
from maskreg.flow.apply.in_memory import stage
from maskreg.flow.apply.sharded import patch_sharded
from maskreg.store.file import FileStore
from maskreg.update.delta import Delta
from maskreg.update.route import switching
from tests.checkpoints import Tensor, bf16, f32, moved
from tests.ranks import write_results

SHARDED: dict[str, tuple[int, ...]] = {
    "rows": (2100, 2003),
    "columns": (1300, 2003),
    "experts": (7, 120, 33),
    "inner": (7, 120, 33),
    "few": (2, 9),
    "bias": (77,),
    **{f"layer{number}": (301, 400) for number in range(14)},
}
"""Shapes; one of several blocks, one with fewer rows than processes, and many alike, as in any model."""

DIMS = {name: {"columns": 1, "inner": 2}.get(name, 0) for name in SHARDED}
"""Dimensions along which they are sharded."""

SPARSE = ("rows", "columns")
"""Tensors in which few coordinates move."""


def small_objects() -> None:
    """Objects of 64 KiB, so that there are several for each process."""
    for module in (layout, arrays):
        setattr(module, "SHARD_BYTES", 1 << 16)  # noqa: B010
    layout.CHUNK_BYTES = 1 << 12


def source_of() -> dict[str, Tensor]:
    """Tensors of all kinds, and three that every process has whole."""
    sharded = {name: bf16(shape, number) for number, (name, shape) in enumerate(SHARDED.items())}
    return {**sharded, "whole": bf16((40, 7), 11), "kept": bf16((300, 5), 12), "router": f32((9,), 13)}


def target_of(source: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """An update, sparse in places."""
    still = ("kept", "router")
    changed = {n: moved(t, 0.01 if n in SPARSE else 0.4, seed) for n, t in source.items() if n not in still}
    return {**source, **changed, "router": f32((9,), 13 + seed)}


def artifact(root: Path) -> Artifact:
    """The only one in a store."""
    (path,) = (root / "artifacts/sha256").iterdir()
    return Artifact.open(FileStore(root), maskreg.Digest(f"sha256:{path.name}"))


def plain(path: Path) -> dict[str, torch.Tensor]:
    """A checkpoint's tensors."""
    opened = open_checkpoint(path)
    kinds = {"BF16": (torch.int16, torch.bfloat16), "F32": (torch.int32, torch.float32)}
    return {
        name: torch.from_numpy(opened.read(name, 0, info.numel).copy()).view(kinds[info.dtype][0])
        .view(kinds[info.dtype][1]).reshape(info.shape)
        for name, info in opened.tensors.items()
    }  # fmt: skip


def distributed(tensors: Mapping[str, torch.Tensor], mesh: Any) -> dict[str, Any]:
    """Sharded as :data:`DIMS` says; one is replicated, and the others are plain."""
    return {
        name: distribute_tensor(tensor, mesh, [Shard(DIMS[name])])
        if name in DIMS
        else distribute_tensor(tensor, mesh, [Replicate()])
        if name == "kept"
        else tensor.clone()
        for name, tensor in tensors.items()
    }


def full(tensor: Any) -> torch.Tensor:
    """All of a tensor."""
    with torch.no_grad():
        whole: torch.Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        return whole.detach()


def same(state: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> bool:
    """Whether they hold the same bits; every process must call it."""
    width = {2: torch.int16, 4: torch.int32}
    pairs = [(full(state[name]).contiguous(), to.detach().contiguous()) for name, to in expected.items()]
    return all(torch.equal(*(each.view(width[each.element_size()]) for each in pair)) for pair in pairs)


def raised(work: Callable[[], object]) -> list[str]:
    """The class and message of the error."""
    try:
        work()
    except maskreg.MaskregError as error:
        return [type(error).__name__, error.message]
    return []


@contextmanager
def reading() -> Iterator[list[Any]]:
    """What this process read and kept, each time it patched a sharded model."""
    seen: list[Any] = []

    def patched(*args: Any) -> Any:
        seen.append(patch_sharded(*args))
        return seen[-1]

    calling: Any = in_memory
    calling.patch_sharded = patched
    yield seen
    calling.patch_sharded = patch_sharded


def tensors(directory: Path) -> dict[str, Any]:
    """A state dict with every way of sharding, there, on and back; then with mistakes on one process."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    first, second = artifact(directory / "first"), artifact(directory / "second")
    sides = {name: plain(directory / name) for name in ("source", "target-first", "target-second")}
    state = distributed(sides["source"], mesh)
    outcome: dict[str, Any] = {}
    with reading() as seen:
        apply_(state, first, jobs=2)
    outcome["read"] = [seen[0].n_bytes, seen[0].read_bytes]
    outcome["applied"] = same(state, sides["target-first"])
    switch_(state, first, second)
    outcome["switched"] = same(state, sides["target-second"])
    outcome["already"] = raised(lambda: switch_(state, first, second))
    apply_(state, second, revert=True)
    outcome["reverted"] = same(state, sides["source"])
    outcome |= staged(state, first, second, sides)
    last = dist.get_rank() == dist.get_world_size() - 1
    if last:
        state["bias"].to_local()[-1] *= 2
    wrong = {name: full(tensor).clone() for name, tensor in state.items()}
    outcome["wrong bit"] = raised(lambda: apply_(state, first))
    outcome["untouched"] = same(state, wrong)
    state = distributed(sides["source"], mesh)
    outcome["damaged"] = raised(lambda: apply_(state, artifact(directory / "damaged")))
    outcome["other artifact"] = raised(lambda: apply_(state, second if last else first))
    if last:
        del state["whole"]
    outcome["missing"] = raised(lambda: apply_(state, first))
    outcome["not here"] = raised(lambda: apply_(state, "toy:v1" if last else first))
    left = {name: sides["source"][name] for name in state}
    outcome["still untouched"] = same(state, left)
    return outcome


def staged(state: dict[str, Any], first: Artifact, second: Artifact, sides: Mapping[str, Any]) -> dict[str, Any]:
    """There in two phases, on to another target, and back; one process changes a weight between the phases."""
    outcome: dict[str, Any] = {}
    change = stage(state, lambda: [Delta(first)], jobs=2)
    outcome["only read"] = same(state, sides["source"])
    change.commit()
    outcome["committed"] = same(state, sides["target-first"])
    stage(state, lambda: switching(first, second)).commit()
    outcome["committed on"] = same(state, sides["target-second"])
    change = stage(state, lambda: [Delta(second, revert=True)])
    if dist.get_rank() == 1:
        state["bias"].to_local().view(torch.int16).bitwise_xor_(1)
    changed = {name: full(tensor).clone() for name, tensor in state.items()}
    outcome["changed between"] = raised(change.commit)
    outcome["left alone"] = same(state, changed)
    if dist.get_rank() == 1:
        state["bias"].to_local().view(torch.int16).bitwise_xor_(1)
    change.commit()
    outcome["committed back"] = same(state, sides["source"])
    return outcome


def model(directory: Path) -> dict[str, bool]:
    """A model of transformers under FSDP2, there and back."""
    sides = [
        AutoModelForCausalLM.from_pretrained(directory / side, dtype=torch.bfloat16) for side in ("source", "target")
    ]
    sharded = AutoModelForCausalLM.from_pretrained(directory / "source", dtype=torch.bfloat16)
    for layer in sharded.model.layers:
        fully_shard(layer)
    fully_shard(sharded)
    own = artifact(directory / "root")
    outcome = {}
    for step, revert, side in (("applied", False, sides[1]), ("reverted", True, sides[0])):
        apply_(sharded, own, revert=revert)
        outcome[step] = same(dict(sharded.named_parameters()), dict(side.named_parameters()))
    apply_(sharded.state_dict(), own)
    outcome["state dict"] = same(dict(sharded.named_parameters()), dict(sides[1].named_parameters()))
    return outcome


def replicated(directory: Path) -> dict[str, Any]:
    """Under DDP, with a mistake on one process."""
    sides = {name: plain(directory / name) for name in ("source", "target-first")}
    module: Any = torch.nn.Module()
    for name, tensor in sides["source"].items():
        module.register_parameter(name, torch.nn.Parameter(tensor.clone()))
    ddp = torch.nn.parallel.DistributedDataParallel(module)
    apply_(ddp, artifact(directory / "first"))
    outcome: dict[str, Any] = {"applied": same(dict(module.named_parameters()), sides["target-first"])}
    if dist.get_rank() == 1:
        with torch.no_grad():
            module.bias[0] *= 2
    outcome["wrong bit"] = raised(lambda: apply_(ddp, artifact(directory / "first"), revert=True))
    if dist.get_rank() == 0:
        outcome["untouched"] = same(dict(module.named_parameters()), sides["target-first"])
    return outcome


def main(directory: Path) -> None:
    """Write what came out on every process."""
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    dist.init_process_group("gloo")
    with torch.no_grad():
        found: dict[str, Any] = {"moe": model(directory / "moe")}
    small_objects()
    found["tensors"] = tensors(directory / "tensors")
    found["replicated"] = replicated(directory / "tensors")
    write_results(directory, found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
