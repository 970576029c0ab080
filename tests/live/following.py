"""Run by torchrun in several processes: a sharded model is published, and another one follows it; writes JSON."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import maskreg
from maskreg.errors import MaskregError
from tests.ranks import write_results


class Model(torch.nn.Module):
    """Two layers, of which one does not divide by the number of processes."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(8, 5, bias=False, dtype=torch.bfloat16)
        self.down = torch.nn.Linear(5, 8, bias=False, dtype=torch.bfloat16)


def sharded(seed: int = 0) -> Model:
    """The model over all processes."""
    torch.manual_seed(seed)
    model = Model()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model


def whole(model: Model) -> list[list[float]]:
    """All weights."""
    return [each.full_tensor().float().flatten().tolist() for each in model.parameters()]  # type: ignore[attr-defined]


def refused(publisher: maskreg.Publisher, model: Model) -> str:
    """What is said of a model that has a weight too many."""
    model.extra = torch.nn.Parameter(torch.ones(3))
    try:
        publisher.publish(model)
    except MaskregError as error:
        return error.message
    return ""


def main(directory: Path) -> None:
    """Write what came out on every process."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    # Homes of their own, as on several machines: all of them see the remote.
    home = directory / f"home-{dist.get_rank()}"
    settings = maskreg.Settings(home=home, config_path=home / "config.toml")
    trained, served = sharded(), sharded()
    found: dict[str, object] = {}
    with maskreg.Workspace(settings) as workspace:
        maskreg.remotes.add("team", directory / "team", workspace=workspace)
        dist.barrier()
        with (
            maskreg.Publisher("toy/run", source=directory / "source", remote="team", workspace=workspace) as publisher,
            maskreg.follow(served, "toy/run", every_s=0, workspace=workspace) as follower,
        ):
            for step in range(2):
                with torch.no_grad():
                    for parameter in trained.parameters():
                        parameter.mul_(1.5 + step)
                link = publisher.publish(trained, meta={"step": str(step)})
                found[f"published {step}"] = link is not None
                followed = follower.step()
                found[f"links {step}"] = followed.links if followed else 0
                found[f"equal {step}"] = whole(served) == whole(trained)
            found["refused"] = refused(publisher, trained)
    write_results(directory, found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
