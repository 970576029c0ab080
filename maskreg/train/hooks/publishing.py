"""Publishing from Hugging Face's Trainer, after every step, at every save or at the end; and storing the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from maskreg.errors import UsageError
from maskreg.live.state import is_sharded


class Publishes(Protocol):
    """What publishes weights, such as a ``maskreg.Publisher``."""

    def publish(self, weights: torch.nn.Module, *, meta: Mapping[str, str] | None = None, async_: bool = False) -> Any:
        """Publish the weights of a model as they are now; of a sharded one in all processes."""

    def wait(self) -> Any:
        """What was published beside the training since the last call."""


class PublishCallback(TrainerCallback):  # type: ignore[misc]
    """Publishes the model's weights after every step of a Trainer, at every save, or once at the end of the training.

    After steps it publishes beside the training: the next step waits only until it is known what moved. Of several
    processes the first one publishes; a sharded model is published by all of them together.

    Attributes:
        published: what was published, in order; of a sharded model None in all processes but the first.
    """

    def __init__(self, publisher: Publishes, *, at: Literal["step", "save", "end"] = "save") -> None:
        """Take a publisher, which its owner closes."""
        if at not in ("step", "save", "end"):
            raise UsageError(f"at={at!r}: pass 'step', 'save' or 'end'")
        self._publisher = publisher
        self._at = at
        self.published: list[Any] = []

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Publish, if it is to be done after every step."""
        if self._at == "step":
            self._publish(state, given["model"])

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Publish, if it is to be done at every save."""
        if self._at == "save":
            self._publish(state, given["model"])

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Publish, if it is to be done at the end; after steps, wait for the last one."""
        if self._at == "end":
            self._publish(state, given["model"])
        elif self._at == "step":
            self._collect()

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Add the figures of the latest publication: ``sync/find_s``, ``sync/bytes``, ``sync/moved_share``..."""
        if self.published and self.published[-1] is not None:
            figures = self.published[-1].event.figures()
            # Trainer keeps a copy, and what is called after this reads the other.
            for logs in (given["logs"], state.log_history[-1]):
                logs.update(figures)

    def _publish(self, state: TrainerState, model: torch.nn.Module) -> None:
        meta = {"step": str(state.global_step)}
        if not (is_sharded(model) or state.is_world_process_zero):
            return
        if self._at == "step":
            self._collect()
            self._publisher.publish(model, meta=meta, async_=True)
        else:
            self.published.append(self._publisher.publish(model, meta=meta))

    def _collect(self) -> None:
        if (published := self._publisher.wait()) is not None:
            self.published.append(published)


class ResultCallback(TrainerCallback):  # type: ignore[misc]
    """Stores what the training has changed as an artifact when it ends; of a sharded model, without gathering it.

    ``ResultCallback(maskreg.extract_result, "lab/mask:v1", name="lab/result")``: the first argument is called with the
    model and the others, in all processes. So it is when the training begins, as a dry run: what is wrong with the
    others is said before hours are spent.

    Attributes:
        stored: what it returned, a ``maskreg.Extracted`` in the first process; None until the training ends.
    """

    def __init__(self, extract: Callable[..., Any], *given: Any, **options: Any) -> None:
        """Take what extracts a result, and what it takes beside the model."""
        self._extract, self._given, self._options = extract, given, options
        self.stored: Any = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        """Check what the result is made of."""
        self._extract(given["model"], *self._given, **self._options, dry_run=True)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Store the result."""
        self.stored = self._extract(given["model"], *self._given, **self._options)
