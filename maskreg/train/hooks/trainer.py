"""Masked training in Hugging Face's Trainer and its subclasses."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from maskreg.errors import MaskregError
from maskreg.train.hooks.attach import Attachment, attach
from maskreg.train.masks import MaskLike
from maskreg.train.optimizers import Masked, MaskedAdamW


class _Taken(float):
    """The 0 that Trainer sees once an optimizer has taken over its clipping; saved as a plain 0.0.

    Attributes:
        taken: the norm.
    """

    taken: float

    def __new__(cls, norm: float) -> _Taken:
        zero = super().__new__(cls, 0.0)
        zero.taken = norm
        return zero

    def __deepcopy__(self, _: object) -> _Taken:
        return self

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        return float, (0.0,)


def masked_adamw(args: TrainingArguments, mask: MaskLike, **options: Any) -> tuple[type[MaskedAdamW], dict[str, Any]]:
    """Trainer's ``optimizer_cls_and_kwargs`` for AdamW on a mask, with the options of the arguments.

    Trainer would clip gradients before the optimizer sees them, by a norm that includes frozen coordinates. So the
    optimizer clips instead: it takes over ``args.max_grad_norm``, which becomes 0. So does every other optimizer
    that is made from the same arguments; set the norm anew to change it.
    """
    own = {"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon}
    return MaskedAdamW, {"lr": args.learning_rate, **own, **_clipping(args), "mask": mask, **options}


def masked(
    args: TrainingArguments, optimizer: Callable[..., torch.optim.Optimizer], mask: MaskLike, **options: Any
) -> tuple[type[Masked], dict[str, Any]]:
    """The same for an optimizer of another class (:class:`maskreg.train.Masked`), whose other numbers are options."""
    return Masked, {"optimizer": optimizer, "lr": args.learning_rate, **_clipping(args), "mask": mask, **options}


def _clipping(args: TrainingArguments) -> dict[str, float]:
    norm = args.max_grad_norm.taken if isinstance(args.max_grad_norm, _Taken) else args.max_grad_norm
    if not norm:
        return {}
    args.max_grad_norm = _Taken(norm)
    return {"max_grad_norm": norm}


class MaskCallback(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Attaches a mask when training begins, and checks in every save that nothing outside it moved.

    A masked optimizer has its own mask. Any other optimizer needs one as an argument; its frozen coordinates are
    restored.

    Trainer asks for the state of callbacks when it has written the weights, so no other callback comes between what is
    checked and what is saved. The folder of a save that fails is renamed to ``refused-checkpoint-STEP``: Trainer does
    not resume from it or push it, and earlier checkpoints stay::

        on_step_end, on_log, on_evaluate    other callbacks and optimizer.eval() can write to the weights
        save_model                          the weights are written
        state()                             checked in the process that writes files
        trainer_state.json, push, rotation
        on_save                             checked in every other process

    Attributes:
        attachment: of the current or last training run.
    """

    def __init__(self, mask: MaskLike | None = None) -> None:
        """Take a mask, by the names in the checkpoint, for an optimizer without one."""
        self._mask = mask
        self._optimizer: Any = None
        self._run: tuple[TrainingArguments, TrainerState] | None = None
        self.attachment: Attachment | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        """Attach the mask to the model."""
        if self.attachment is not None:
            self.attachment.detach()
        self.attachment = attach(given["model"], given["optimizer"], self._mask)
        self._optimizer = given["optimizer"]
        # The state of a run that was saved without this callback lacks it.
        state.stateful_callbacks.setdefault(type(self).__name__, self.state())
        self._run = args, state

    def state(self) -> dict[str, Any]:
        """Check what was just written, and return the callback's arguments for ``trainer_state.json``."""
        self._check_saved()
        return {"args": {"mask": self._mask} if isinstance(self._mask, str) else {}, "attributes": {}}

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Check in a process that writes no files; raises what :meth:`state` does."""
        if not args.should_save:
            self._check_saved()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Check the result and detach; raises what :meth:`state` does."""
        self._run = None
        if self.attachment is not None:
            self.attachment.check()
            self.attachment.detach()

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Log the norm before the optimizer's clipping, which Trainer does not see."""
        norm = getattr(getattr(self._optimizer, "optimizer", self._optimizer), "grad_norm", None)
        for row in (given.get("logs"), state.log_history[-1] if state.log_history else None):
            if row is not None and norm is not None and "grad_norm" in row:
                row["grad_norm"] = float(norm)

    def _check_saved(self) -> None:
        if self._run is None or self.attachment is None:
            return
        try:
            self.attachment.check()
        except MaskregError:
            (args, state), self._run = self._run, None
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            refused = folder.with_name(f"refused-{folder.name}")
            with suppress(OSError):  # another process, which found the same, has renamed it
                renamed = folder.rename(folder.with_name(f"{refused.name}-{os.getpid()}"))
                shutil.rmtree(refused, ignore_errors=True)
                renamed.rename(refused)
            raise
