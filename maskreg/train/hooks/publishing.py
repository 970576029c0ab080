"""Publishing from Hugging Face's Trainer: at every save, or once at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from maskreg.errors import UsageError
from maskreg.live.state import is_sharded


class Publishes(Protocol):
    """What publishes weights, such as a ``maskreg.Publisher``."""

    def publish(self, weights: torch.nn.Module, *, meta: Mapping[str, str] | None = None) -> Any:
        """Publish the weights of a model as they are now; of a sharded one in all processes."""


class PublishCallback(TrainerCallback):  # type: ignore[misc]
    """Publishes the model's weights at every save of a Trainer, or once at the end of the training.

    Of several processes the first one publishes; a sharded model is published by all of them together.

    Attributes:
        published: what was published, in order; of a sharded model None in all processes but the first.
    """

    def __init__(self, publisher: Publishes, *, at: Literal["save", "end"] = "save") -> None:
        """Take a publisher, which its owner closes."""
        if at not in ("save", "end"):
            raise UsageError(f"at={at!r}: pass 'save' or 'end'")
        self._publisher = publisher
        self._at = at
        self.published: list[Any] = []

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Publish, if it is to be done at every save."""
        if self._at == "save":
            self._publish(state, given["model"])

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Publish, if it is to be done at the end."""
        if self._at == "end":
            self._publish(state, given["model"])

    def _publish(self, state: TrainerState, model: torch.nn.Module) -> None:
        meta = {"step": str(state.global_step)}
        if is_sharded(model) or state.is_world_process_zero:
            self.published.append(self._publisher.publish(model, meta=meta))
