"""A model in memory that follows a run."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import maskreg
from maskreg.errors import NotOnChainError, UsageError, WrongCheckpointError
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved

RUN = "toy/run"
PARTS = {False: ("delta",), True: ("delta", "reverse")}
SHAPES = {"up.weight": (40, 16), "down.weight": (16, 40), "norm": (16,)}

State = dict[str, torch.Tensor]


@pytest.fixture
def steps(tmp_path: Path) -> list[Path]:
    """The source, and what five steps made of it."""
    tensors: dict[str, Tensor] = {name: bf16(shape, seed) for seed, (name, shape) in enumerate(SHAPES.items())}
    paths = [make_checkpoint(tmp_path / "0", tensors)]
    for step in range(1, 6):
        tensors = {name: moved(tensor, 0.1, 10 * step + n) for n, (name, tensor) in enumerate(tensors.items())}
        paths.append(make_checkpoint(tmp_path / str(step), tensors))
    return paths


@pytest.fixture
def space(tmp_path: Path) -> Iterator[maskreg.Workspace]:
    with maskreg.Workspace(maskreg.Settings(home=tmp_path / "home", config_path=tmp_path / "config.toml")) as workspace:
        yield workspace


@pytest.fixture
def run(space: maskreg.Workspace, steps: list[Path]) -> Iterator[maskreg.Publisher]:
    with maskreg.Publisher(RUN, source=steps[0], workspace=space) as publisher:
        publisher.publish(steps[1])
        publisher.publish(steps[2])
        yield publisher


def loaded(path: Path) -> State:
    state: State = load_file(path / "model.safetensors")
    return state


def is_at(model: State, path: Path) -> bool:
    return all(
        torch.equal(model[name].view(torch.int16), each.view(torch.int16)) for name, each in loaded(path).items()
    )


def follow(model: State, space: maskreg.Workspace, **options: object) -> maskreg.Follower:
    return maskreg.follow(model, RUN, every_s=0, workspace=space, **options)  # type: ignore[arg-type]


def test_followers_that_share_what_they_stage_are_all_at_the_tag(
    run: maskreg.Publisher, space: maskreg.Workspace, steps: list[Path], tmp_path: Path
) -> None:
    models = [loaded(steps[start]) for start in (0, 0, 1)]
    followers = [follow(model, space, folder=tmp_path / "shared") for model in models]
    for target in (2, 3):
        for follower, model in zip(followers, models, strict=True):
            assert follower.step() is not None
            assert is_at(model, steps[target])
        run.publish(steps[3])
    for follower in followers:
        follower.close()
    assert len(list((tmp_path / "shared").glob("*.moved"))) == 2


@pytest.mark.parametrize("start", [0, 1, 2])
def test_a_model_is_brought_to_the_tag_from_wherever_it_is(
    run: maskreg.Publisher, space: maskreg.Workspace, steps: list[Path], start: int
) -> None:
    model = loaded(steps[start]) | {"buffer": torch.ones(3)}
    with follow(model, space) as follower:
        followed = follower.step()
        assert followed is not None
        assert (followed.links, followed.out) == (2 - start, None)
        assert is_at(model, steps[2])
        assert follower.step() is None
        run.publish(steps[3])
        assert follower.wait(0) is not None
        assert is_at(model, steps[3])


def test_links_are_brought_first_and_applied_when_it_is_safe(
    run: maskreg.Publisher, space: maskreg.Workspace, steps: list[Path]
) -> None:
    model = loaded(steps[0])
    with follow(model, space) as follower:
        assert follower.apply() is None
        assert follower.fetch()
        assert is_at(model, steps[0])
        run.publish(steps[3])
        followed = follower.apply()
        assert followed is not None
        assert followed.digest != space.find(RUN).digest
        assert is_at(model, steps[2])
        follower.step()
        assert is_at(model, steps[3])


def test_another_thread_may_fetch(run: maskreg.Publisher, tmp_path: Path, steps: list[Path]) -> None:
    for remote in (False, True):
        home = tmp_path / ("far" if remote else "home")
        settings = maskreg.Settings(home=home, config_path=home / "config.toml")
        model = loaded(steps[0])
        with maskreg.Workspace(settings) as space, ThreadPoolExecutor(1) as thread:
            if remote:
                maskreg.remotes.add("team", tmp_path / "home", workspace=space)
            with follow(model, space) as follower:
                assert thread.submit(follower.fetch).result()
                assert follower.apply() is not None
                assert thread.submit(follower.fetch).result() is False
                assert follower.step() is None
        assert is_at(model, steps[2])


def test_the_tag_is_not_looked_at_more_often_than_stated(
    run: maskreg.Publisher, space: maskreg.Workspace, steps: list[Path]
) -> None:
    model = loaded(steps[0])
    with maskreg.follow(model, RUN, every_s=3600, workspace=space) as follower:
        assert follower.step() is not None
        run.publish(steps[3])
        assert follower.step() is None
        assert is_at(model, steps[2])


def test_other_weights_are_left_alone(run: maskreg.Publisher, space: maskreg.Workspace, steps: list[Path]) -> None:
    stranger = loaded(steps[5])
    with follow(stranger, space) as follower, pytest.raises(NotOnChainError):
        follower.step()
    # Said to be what it is not: refused before the first weight is written.
    first = space.local.history(maskreg.Ref.parse(RUN))[0].digest
    with follow(stranger, space, at=first) as follower, pytest.raises(WrongCheckpointError):
        follower.step()
    assert is_at(stranger, steps[5])
    with pytest.raises(UsageError, match=r"^str "):
        maskreg.follow("model", RUN, workspace=space)  # type: ignore[arg-type]


def test_a_model_that_was_changed_is_refused_and_left_alone(
    run: maskreg.Publisher, space: maskreg.Workspace, steps: list[Path]
) -> None:
    model = loaded(steps[0])
    with follow(model, space) as follower:
        follower.step()
        model["norm"][0] += 1
        changed = {name: value.clone() for name, value in model.items()}
        run.publish(steps[3])
        for _ in range(2):
            with pytest.raises(WrongCheckpointError, match="norm"):
                follower.step()
        assert all(torch.equal(model[name], changed[name]) for name in model)


def test_a_tag_that_moved_back_needs_links_that_lead_back(space: maskreg.Workspace, steps: list[Path]) -> None:
    for reversible in (False, True):
        name = f"toy/run-{reversible}".lower()
        with maskreg.Publisher(name, source=steps[0], parts=PARTS[reversible], workspace=space) as run:
            first = run.publish(steps[1])
            run.publish(steps[2])
        assert first is not None
        model = loaded(steps[0])
        with maskreg.follow(model, name, every_s=0, workspace=space) as follower:
            follower.step()
            maskreg.tag(first, "latest", workspace=space)
            if reversible:
                follower.step()
                assert is_at(model, steps[1])
            else:
                with pytest.raises(NotOnChainError):
                    follower.step()
                assert is_at(model, steps[2])
