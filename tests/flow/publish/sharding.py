"""Run by torchrun in several processes: models sharded in every way are published; writes digests as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import maskreg
from maskreg.train import save_model
from tests.checkpoints import Tensor, bf16, f32, moved
from tests.flow.apply.sharding import plain, raised
from tests.ranks import write_results

SHAPES: dict[str, tuple[int, ...]] = {
    "rows": (2100, 2003),
    "columns": (300, 2003),
    "experts": (7, 120, 33),
    "few": (2, 9),
    "bias": (77,),
    "empty": (0, 4),
    "lm_head": (40, 33),
    "embed_tokens": (40, 33),
}
"""One of several blocks, some with fewer rows than processes."""

STEPS = 3


def states() -> list[dict[str, Tensor]]:
    """A source and what steps made of it: sparse, and tensors that stay, are wide, or are tied in the first step."""
    source = {name: bf16(shape, number) for number, (name, shape) in enumerate(SHAPES.items())}
    source |= {"kept": bf16((30, 5), 12), "router": f32((9,), 13), "lm_head": source["embed_tokens"]}
    result = [source]
    for step in range(1, STEPS + 1):
        last = result[-1]
        still = ("kept", "router") if step == 2 else ("kept",)
        new = {name: moved(tensor, 0.01, 10 * step + n) for n, (name, tensor) in enumerate(last.items()) if n < 7}
        new |= {"router": f32((9,), 13 + step)}
        new["embed_tokens"] = new["lm_head"] if step == 1 else moved(last["embed_tokens"], 0.2, step)
        result.append({**last, **{name: tensor for name, tensor in new.items() if name not in still}})
    return result


def placements(world: int) -> dict[str, Callable[[str], tuple[tuple[int, ...], list[Any]]]]:
    """Ways to distribute a tensor: the shape of a mesh, and placements."""

    def along(name: str) -> Shard:
        return Shard(min(1, len(SHAPES.get(name, (1,))) - 1))

    if world == 4:
        return {
            "hsdp": lambda name: ((2, 2), [Replicate(), Shard(0)]),
            "both": lambda name: ((2, 2), [Shard(0), along(name)]),
        }
    return {
        "fsdp": lambda name: ((world,), [Shard(0)]),
        "tensor": lambda name: ((world,), [along(name)]),
        "replicated": lambda name: ((world,), [Replicate()]),
    }


def distributed(tensors: Mapping[str, torch.Tensor], way: Callable[[str], Any]) -> dict[str, torch.Tensor]:
    """A state dict of DTensors, of which some are plain."""
    meshes: dict[tuple[int, ...], Any] = {}
    result: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if name in ("kept", "router"):
            result[name] = tensor.clone()
            continue
        shape, placed = way(name)
        mesh = meshes.setdefault(shape, init_device_mesh("cpu", shape))
        result[name] = distribute_tensor(tensor, mesh, placed)
    return result


def error_of(work: Callable[[], object]) -> str:
    """The class of the error."""
    return "".join(raised(work)[:1])


def digest_of(published: maskreg.Published | None) -> str:
    return "" if published is None else str(published.digest)


def results(directory: Path, workspace: maskreg.Workspace) -> dict[str, list[str]]:
    """Digests of what each step is as a result, by how the model is sharded."""
    steps = [plain(directory / f"step-{number}") for number in range(1, STEPS + 1)]
    source = directory / "step-0"

    def extracted(step: Mapping[str, torch.Tensor]) -> str:
        result = maskreg.extract_result(step, source=source, name="toy/result", workspace=workspace)
        return "" if result is None else str(result.digest)

    ways = placements(dist.get_world_size())
    return {name: [extracted(distributed(step, way)) for step in steps] for name, way in ways.items()} | {
        "copies": [extracted(steps[0])]
    }


def refusals(directory: Path, workspace: maskreg.Workspace) -> dict[str, str]:
    """What no result is made of, with one fault on one process or on all."""
    way, source, rank = placements(dist.get_world_size())["fsdp"], directory / "step-0", dist.get_rank()
    first = distributed(plain(directory / "step-1"), way)
    moved_on = distributed(plain(directory / "step-2"), way)
    lacking = {name: tensor for name, tensor in first.items() if name != "rows" or not rank}
    whole = first if rank else plain(directory / "step-1")
    aside = directory / "aside"

    def refused(model: Mapping[str, torch.Tensor], *given: Any, **options: Any) -> str:
        return error_of(lambda: maskreg.extract_result(model, *given, workspace=workspace, **options))

    found = {
        "surplus": refused({**first, **({"extra": torch.ones(3)} if rank else {})}, source=source),
        "missing": refused(lacking, source=source),
        "without a shard": refused(whole, source=source),
        "outside the mask": refused(moved_on, "toy/mask", source=source),
        "mask of another model": refused(first, "toy/mask", source=directory / "moe/source"),
        "no such mask": refused(first, "toy/none"),
        "neither": refused(first),
    }
    dist.barrier()
    if not rank:
        source.rename(aside)
    dist.barrier()
    found["moved away"] = refused(first, "toy/mask")
    dist.barrier()
    if not rank:
        aside.rename(source)
    dist.barrier()
    stored = maskreg.extract_result(first, "toy/mask", name="toy/masked", workspace=workspace)
    found["stored"] = "" if stored is None else str(stored.digest)
    return found


def every_way(directory: Path, workspace: maskreg.Workspace) -> dict[str, list[str]]:
    """Digests of the links, by how the model is sharded; the last link by a publisher that starts again."""
    steps = [plain(directory / f"step-{number}") for number in range(1, STEPS + 1)]
    found: dict[str, list[str]] = {}
    for name, way in placements(dist.get_world_size()).items():
        first, second, third = (distributed(step, way) for step in steps)
        run = f"toy/{name}"
        with maskreg.Publisher(run, source=directory / "step-0", workspace=workspace) as publisher:
            links = [digest_of(publisher.publish(first))]
            publisher.publish(second, async_=True)
            links.append(digest_of(publisher.wait()))
        with maskreg.Publisher(run, source=directory / "step-0", baseline="disk", workspace=workspace) as publisher:
            publisher.prepare(third)
            links.append(digest_of(publisher.publish(third)))
        found[name] = links
    return found


def failures(directory: Path, workspace: maskreg.Workspace) -> dict[str, str]:
    """What goes wrong on one process, or on all."""
    way = placements(dist.get_world_size())["fsdp"]
    first, second, _ = (distributed(plain(directory / f"step-{number}"), way) for number in range(1, STEPS + 1))
    rank = dist.get_rank()
    found: dict[str, str] = {}
    away, team = directory / "away", directory / "team"
    with maskreg.Publisher("toy/run", source=directory / "step-0", remote="team", workspace=workspace) as publisher:
        extra = {"extra": torch.ones(3)} if rank else {}
        found["surplus on one"] = error_of(lambda: publisher.publish({**first, **extra}))
        lacking = {name: tensor for name, tensor in first.items() if name != "rows" or not rank}
        found["missing on one"] = error_of(lambda: publisher.publish(lacking))
        found["first"] = digest_of(publisher.publish(first))
        dist.barrier()
        if not rank:
            team.rename(away)
            team.write_text("")
        dist.barrier()
        found["upload"] = error_of(lambda: publisher.publish(second))
        dist.barrier()
        if not rank:
            team.unlink()
            away.rename(team)
        dist.barrier()
        again = publisher.publish(second)
        found["again"] = digest_of(again)
        found["pushed"] = "" if again is None or again.pushed is None else str(again.pushed.digest)
        found["circle"] = error_of(lambda: publisher.publish(first))
        publisher.publish(first, async_=True)
        found["circle beside"] = error_of(publisher.close)
    return found


def main(directory: Path) -> None:
    """Write what came out on every process."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    settings = maskreg.Settings(home=directory / "home", config_path=directory / f"config-{dist.get_rank()}.toml")
    found: dict[str, Any] = {}
    with maskreg.Workspace(settings) as workspace:
        # One after another, since all probe the same folder.
        for rank in range(dist.get_world_size()):
            if rank == dist.get_rank():
                maskreg.remotes.add("team", directory / "team", workspace=workspace)
            dist.barrier()
        found["ways"] = every_way(directory, workspace)
        if (directory / "moe").is_dir():
            found["results"] = results(directory, workspace)
            found["failures"] = failures(directory, workspace)
            found["refusals"] = refusals(directory, workspace)
            # Late: it takes each process seconds.
            from transformers import AutoModelForCausalLM
            from transformers.utils import logging

            logging.set_verbosity_error()
            logging.disable_progress_bar()
            model: Any = AutoModelForCausalLM.from_pretrained(directory / "moe/target", dtype=torch.bfloat16)
            fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
            source, parts = directory / "moe/source", ("mask", "delta")
            with maskreg.Publisher("toy/moe", source=source, parts=parts, workspace=workspace) as publisher:
                found["moe"] = digest_of(publisher.publish(model))
            save_model(model, source, directory / "moe/saved")
    write_results(directory, found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
