"""Models that several processes hold, published by all of them together, as one process would publish them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import maskreg
from tests.checkpoints import make_checkpoint
from tests.flow.apply.sharding import plain
from tests.flow.making import stored
from tests.flow.publish.sharding import placements, states
from tests.live import models
from tests.live.quiet import quiet
from tests.live.test_masks import perturb
from tests.ranks import in_processes

__all__ = ["quiet"]

TWO = pytest.mark.parametrize("world", [2], indirect=True, scope="module")
"""What is tried in two processes alone."""


@pytest.fixture(params=[2, 4], scope="module")
def world(request: pytest.FixtureRequest) -> int:
    """How many processes."""
    number: int = request.param
    return number


@pytest.fixture(scope="module")
def directory(world: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of a run and, for two processes, of a model of transformers that fuses and stacks experts."""
    path = tmp_path_factory.mktemp(f"published-{world}")
    for number, tensors in enumerate(states()):
        make_checkpoint(path / f"step-{number}", tensors)
    if world == 2:
        torch.manual_seed(0)
        model: Any = models.qwen3_moe().to(torch.bfloat16)
        for side in ("source", "target"):
            model.save_pretrained(path / "moe" / side)
            perturb(model)
    with opened(path / "home") as workspace:
        maskreg.extract(path / "step-0", path / "step-1", "toy/mask", family="toy", workspace=workspace)
    return path


def opened(home: Path) -> maskreg.Workspace:
    """The registry in a folder."""
    return maskreg.Workspace(maskreg.Settings(home=home, config_path=home / "config.toml"))


@pytest.fixture(scope="module")
def ranks(programs: Path, world: int, directory: Path) -> list[dict[str, Any]]:
    """What :mod:`tests.flow.publish.sharding` wrote, for each process."""
    return in_processes(programs, "tests/flow/publish/sharding.py", directory, world)


@pytest.fixture(scope="module")
def alone(directory: Path) -> list[str]:
    """Digests of the links that one process publishes of the same weights."""
    with opened(directory / "alone") as workspace:
        links = [
            maskreg.publish(directory / f"step-{number}", "toy/run", source=directory / "step-0", workspace=workspace)
            for number in (1, 2, 3)
        ]
    return [str(link.digest) for link in links if link is not None]


@pytest.mark.usefixtures("quiet")
def test_links_are_those_of_one_process(ranks: list[dict[str, Any]], alone: list[str], world: int) -> None:
    first, *others = (of["ways"] for of in ranks)
    assert first == dict.fromkeys(placements(world), alone)
    assert others == [dict.fromkeys(placements(world), [""] * 3)] * (world - 1)


@TWO
@pytest.mark.usefixtures("quiet")
def test_results_are_those_of_saved_folders(ranks: list[dict[str, Any]], directory: Path, world: int) -> None:
    source = directory / "step-0"
    with opened(directory / "extracted") as workspace:
        steps = [directory / f"step-{number}" for number in (1, 2, 3)]
        extracted = [maskreg.extract(source, step, workspace=workspace) for step in steps]
        alone = [maskreg.extract_result(plain(step), source=source, workspace=workspace) for step in steps]
    saved = [str(each.digest) for each in extracted]
    assert [str(each.digest) for each in alone if each] == saved
    first, *others = (of["results"] for of in ranks)
    assert first == {**dict.fromkeys(placements(world), saved), "copies": saved[:1]}
    assert others == [{**dict.fromkeys(placements(world), [""] * 3), "copies": [""]}] * (world - 1)


@TWO
def test_no_result_is_made_of_what_is_not_one(ranks: list[dict[str, Any]], directory: Path) -> None:
    expected = {
        "surplus": "WrongCheckpointError",
        "missing": "WrongCheckpointError",
        "without a shard": "UsageError",
        "outside the mask": "PairMismatchError",
        "mask of another model": "WrongCheckpointError",
        "no such mask": "NotFoundError",
        "neither": "UsageError",
        "moved away": "NotFoundError",
    }
    with opened(directory / "home") as workspace:
        stored, mask = (workspace.find(f"toy/{name}") for name in ("masked", "mask"))
    assert (str(stored.digest), stored.card.family) == (ranks[0]["refusals"]["stored"], "toy")
    assert stored.digest == mask.digest
    for rank, of in enumerate(ranks):
        assert of["refusals"] == {**expected, "stored": ranks[0]["refusals"]["stored"] if rank == 0 else ""}


@TWO
def test_fused_and_stacked_parameters_are_published_apart(ranks: list[dict[str, Any]], directory: Path) -> None:
    with opened(directory / "alone-moe") as workspace:
        source, target = directory / "moe/source", directory / "moe/target"
        assert ranks[0]["moe"] == str(maskreg.extract(source, target, workspace=workspace).digest)
    assert stored(directory / "moe/saved") == stored(target)


@TWO
def test_all_fail_together_and_go_on(ranks: list[dict[str, Any]], alone: list[str]) -> None:
    for rank, of in enumerate(ranks):
        found = of["failures"]
        assert found["surplus on one"] == found["missing on one"] == "WrongCheckpointError"
        assert found["upload"]
        assert found["circle"] == found["circle beside"] == "BrokenChainError"
        assert [found[name] for name in ("first", "again", "pushed")] == (
            [alone[0], alone[1], alone[1]] if rank == 0 else [""] * 3
        )
