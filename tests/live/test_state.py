"""The weights of a model in memory, read like a checkpoint, and published."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import maskreg
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.errors import TryAgainError, WrongCheckpointError
from maskreg.flow.chain import root_of
from maskreg.live.state import ModelState
from tests.checkpoints import bf16, make_checkpoint


class Model(torch.nn.Module):
    """Two linear layers, the second of which is kept transposed, and a table that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(8, 4, bias=False, dtype=torch.bfloat16)
        self.down = torch.nn.Linear(4, 8, bias=False, dtype=torch.bfloat16)
        self.down.weight = torch.nn.Parameter(self.down.weight.detach().T.contiguous().T)
        self.register_buffer("table", torch.arange(4.0))


@pytest.fixture
def source(tmp_path: Path) -> Checkpoint:
    tensors = {"up.weight": bf16((4, 8), 1), "down.weight": bf16((8, 4), 2)}
    return open_checkpoint(make_checkpoint(tmp_path / "source", tensors))


def filled(source: Checkpoint) -> Model:
    model = Model()
    model.load_state_dict(load_file(f"{source.path}/model.safetensors"), strict=False)
    return model


def state(weights: torch.nn.Module | dict[str, torch.Tensor], source: Checkpoint) -> ModelState:
    return ModelState(weights, source.tensors, source.small_files())


def test_a_model_reads_as_the_checkpoint_it_was_loaded_from(source: Checkpoint) -> None:
    model = filled(source)
    wrapped = torch.nn.Sequential()
    wrapped.add_module("module", model)
    for weights in (model, model.state_dict(), wrapped):
        if isinstance(weights, dict):
            del weights["table"]
        assert root_of(state(weights, source)) == root_of(source)
    assert state(model, source).small_files() == source.small_files()
    with pytest.raises(ValueError, match=r"up\.weight: .*\b33 of 32"):
        state(model, source).read("up.weight", 0, 33)


def test_what_the_source_lacks_is_refused(source: Checkpoint) -> None:
    model = filled(source)
    model.extra = torch.nn.Parameter(torch.ones(3))
    with pytest.raises(WrongCheckpointError, match=" extra: "):
        state(model, source)
    with pytest.raises(WrongCheckpointError, match=r"down\.weight: "):
        state({"up.weight": torch.zeros(4, 8)}, source)
    with pytest.raises(WrongCheckpointError, match=r"down\.weight: .* meta "):
        state(Model().to("meta"), source)


def test_training_publishes_every_step(source: Checkpoint, tmp_path: Path) -> None:
    model = filled(source)
    settings = maskreg.Settings(home=tmp_path / "home", config_path=tmp_path / "config.toml")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    torch.manual_seed(0)
    with (
        maskreg.Workspace(settings) as workspace,
        maskreg.Publisher("toy/run", source=source, workspace=workspace) as run,
    ):
        for step in range(3):
            loss = model.down(model.up(torch.randn(5, 8, dtype=torch.bfloat16))).square().sum()
            loss.backward()
            optimizer.step()
            link = run.publish(model, meta={"step": str(step)})
            assert link is not None
            assert link.manifest.target.root == root_of(state(model, source))
        weights = {name: value for name, value in model.state_dict().items() if name != "table"}
        again = run.publish(weights)
        assert again is not None
        assert again.moved is False
        masters = {name: value.float() for name, value in weights.items()}
        masters["up.weight"] += 1
        cast = run.publish(masters)
        assert cast is not None
        assert cast.manifest.target.cast == "BF16"


def test_a_write_while_weights_are_read_is_noticed(source: Checkpoint) -> None:
    model = filled(source)
    read = state(model, source)
    read.check_unchanged()
    with torch.no_grad():
        model.up.weight.add_(1)
    with pytest.raises(TryAgainError):
        read.check_unchanged()
    state(model, source).check_unchanged()
