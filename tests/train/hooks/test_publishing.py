"""Publishing from Hugging Face's Trainer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import copy
from typing import Any, Literal

import numpy as np
import pytest
import torch
from transformers import Trainer

import maskreg
from maskreg.errors import NotFoundError, UsageError
from maskreg.train import MaskedAdamW, changed
from maskreg.train.hooks.publishing import PublishCallback, ResultCallback
from tests.live import models
from tests.train.hooks.test_trainer import arguments, model_of
from tests.train.optim.training import masked
from tests.train.training import rows

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*pin_memory.*no accelerator is found:UserWarning"),
    pytest.mark.usefixtures("quiet"),
]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[maskreg.Workspace]:
    with maskreg.Workspace(maskreg.Settings(home=tmp_path / "home", config_path=tmp_path / "config.toml")) as opened:
        yield opened


@pytest.mark.parametrize(("at", "steps"), [("step", ["1", "2", "3", "4"]), ("save", ["2", "4"]), ("end", ["4"])])
def test_steps_saves_or_the_end_are_published(
    at: Literal["step", "save", "end"], steps: list[str], tmp_path: Path, workspace: maskreg.Workspace
) -> None:
    model = model_of()
    model.save_pretrained(tmp_path / "source")  # type: ignore[operator]
    served = model_of()
    with (
        maskreg.Publisher("toy/run", source=tmp_path / "source", workspace=workspace) as publisher,
        maskreg.follow(served, "toy/run", workspace=workspace) as follower,
    ):
        callback = PublishCallback(publisher, at=at)
        args = arguments(tmp_path / "run", save_strategy="steps", save_steps=2)
        trainer = Trainer(model, args, train_dataset=rows(), callbacks=[callback])
        trainer.train()
        assert [link.card.meta["step"] for link in callback.published] == steps
        logged = [row["sync/moved"] for row in trainer.state.log_history if "sync/moved" in row]
        assert at == "end" or logged[-1] in [link.event.moved for link in callback.published]
        follower.step()
    for (name, trained), (_, followed) in zip(model.named_parameters(), served.named_parameters(), strict=True):
        assert torch.equal(trained, followed), name


def test_what_an_optimizer_has_changed_is_published_as_if_all_were_compared(
    tmp_path: Path, workspace: maskreg.Workspace
) -> None:
    model: Any = models.qwen3_moe().to(torch.bfloat16)
    model.save_pretrained(tmp_path / "source")
    optimizer = MaskedAdamW(model.named_parameters(), lr=1e-3, mask=masked(model))
    with (
        maskreg.Publisher("toy/told", source=tmp_path / "source", workspace=workspace) as told,
        maskreg.Publisher("toy/comparing", source=tmp_path / "source", workspace=workspace) as comparing,
    ):
        for step in range(5):
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            optimizer.step()
            if step == 2:  # compared whole now, and what was told until then is not lost
                with pytest.raises(UsageError):
                    told.publish(model, changed=[*changed(optimizer), ("other", np.zeros(1, np.int64), np.zeros(1))])
            links: list[Any] = [told.publish(model, changed=changed(optimizer)), comparing.publish(model)]
            assert links[0].digest == links[1].digest
        again = told.publish(model, changed=changed(optimizer))
        assert again is not None
        assert again.moved is False
        with pytest.raises(UsageError):
            told.publish(tmp_path / "source", changed=changed(optimizer))


def test_the_result_of_a_training_is_what_extracting_its_folder_gives(
    tmp_path: Path, workspace: maskreg.Workspace
) -> None:
    model = model_of()
    model.save_pretrained(tmp_path / "source")  # type: ignore[operator]
    callback = ResultCallback(
        maskreg.extract_result, source=tmp_path / "source", name="toy/result", workspace=workspace
    )
    trainer = Trainer(model, arguments(tmp_path / "run"), train_dataset=rows(), callbacks=[callback])
    trainer.train()
    model.save_pretrained(tmp_path / "target")  # type: ignore[operator]
    for file in (tmp_path / "source").glob("*.json"):  # Trainer has changed the model's configuration
        copy(file, tmp_path / "target")
    extracted = maskreg.extract(tmp_path / "source", tmp_path / "target", workspace=workspace)
    assert callback.stored.digest == extracted.digest == workspace.find("toy/result").digest
    assert extracted.manifest.totals.nnz


@pytest.mark.parametrize("artifact", ["toy/nothing", 3])
def test_what_a_result_cannot_be_made_of_ends_a_training_that_has_not_begun(
    artifact: Any, tmp_path: Path, workspace: maskreg.Workspace
) -> None:
    callback = ResultCallback(maskreg.extract_result, artifact, name="toy/result", workspace=workspace)
    trainer = Trainer(model_of(), arguments(tmp_path / "run"), train_dataset=rows(), callbacks=[callback])
    with pytest.raises(UsageError if artifact == 3 else NotFoundError):
        trainer.train()
    assert trainer.state.global_step == 0
    with pytest.raises(UsageError):
        maskreg.extract_result(3, source=tmp_path, workspace=workspace)  # type: ignore[arg-type]


def test_only_steps_saves_and_the_end_are_known() -> None:
    with pytest.raises(UsageError):
        PublishCallback(None, at="never")  # type: ignore[arg-type]
