"""Publishing from Hugging Face's Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch
from transformers import Trainer

import maskreg
from maskreg.errors import UsageError
from maskreg.train.hooks.publishing import PublishCallback
from tests.train.hooks.test_trainer import arguments, model_of
from tests.train.training import rows

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*pin_memory.*no accelerator is found:UserWarning"),
    pytest.mark.usefixtures("quiet"),
]


@pytest.mark.parametrize(("at", "steps"), [("step", ["1", "2", "3", "4"]), ("save", ["2", "4"]), ("end", ["4"])])
def test_steps_saves_or_the_end_are_published(
    at: Literal["step", "save", "end"], steps: list[str], tmp_path: Path
) -> None:
    model = model_of()
    model.save_pretrained(tmp_path / "source")  # type: ignore[operator]
    served = model_of()
    settings = maskreg.Settings(home=tmp_path / "home", config_path=tmp_path / "config.toml")
    with (
        maskreg.Workspace(settings) as workspace,
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


def test_only_steps_saves_and_the_end_are_known() -> None:
    with pytest.raises(UsageError):
        PublishCallback(None, at="never")  # type: ignore[arg-type]
