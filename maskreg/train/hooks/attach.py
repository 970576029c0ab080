"""Masked training in any loop: one call after the model and its optimizer are made."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from maskreg.errors import UsageError
from maskreg.train.hooks.frozen import Fingerprinted, Frozen, Kept
from maskreg.train.hooks.named import MaskLike, mask_of
from maskreg.train.optim.binding import bound_to
from maskreg.train.optim.masked import MaskedOptimizer


class LostUpdateWarning(UserWarning):
    """Parameters too narrow for their updates: most steps round to no change."""


class Attachment:
    """A mask that holds on a model and its optimizer."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        frozen: Sequence[Frozen],
        handles: list[Any],
    ) -> None:
        """See :func:`attach`, which makes it."""
        self._model = model
        self._optimizer = optimizer
        self._frozen = frozen
        self._handles = [*handles, optimizer.register_step_pre_hook(lambda *_: self._check_parameters())]

    def check(self) -> None:
        """Make sure that every coordinate outside the mask has the bits that it had when the mask was attached.

        Reads the weights once, a block at a time.

        Raises:
            CorruptError: one has others; names the parameter.
            UsageError: the model or the optimizer has other parameters now.
        """
        self._check_parameters()
        for one in self._frozen:
            one.check()

    def detach(self) -> None:
        """Let go of the model: from now on nothing is checked, and an optimizer that knows no masks trains it all."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _check_parameters(self) -> None:
        here = dict(self._model.named_parameters(remove_duplicate=False))
        for one in self._frozen:
            now = here.get(one.name)
            sharded = hasattr(now, "to_local") or hasattr(one.parameter, "to_local")
            if now is None or tuple(now.shape) != one.shape or (now is not one.parameter and not sharded):
                what = "is gone" if now is None else f"is another now, {list(now.shape)}"
                raise UsageError(
                    f"{one.name}, {list(one.shape)} when the mask was attached, {what}",
                    hint="resize embeddings before the optimizer is made and the mask attached",
                )
        known = {id(one.parameter) for one in self._frozen}
        if any(id(p) not in known for group in self._optimizer.param_groups for p in group["params"]):
            raise UsageError(
                "the optimizer trains parameters that it did not have when the mask was attached",
                hint="attach the mask after the last add_param_group",
            )


def attach(model: torch.nn.Module, optimizer: torch.optim.Optimizer, mask: MaskLike | None = None) -> Attachment:
    """Train only the coordinates of a mask from now on, in any loop.

    A masked optimizer finds its masks now. With any other, the gradients of frozen coordinates become 0 as soon as
    they are there, so that clipping sees masked ones, and after each step frozen coordinates get back the bits that
    they have now, whatever weight decay, momentum or loaded state did to them. That takes a copy of them; memory for
    optimizer state does not shrink.

    Args:
        model: as it is trained, wrapped or not.
        optimizer: over parameters of the model, all of which the mask covers.
        mask: by name (``"name:tag"``), as an artifact, or by the names in the checkpoint; a masked optimizer may have
            its own.

    Raises:
        UsageError: there is no mask, or it says nothing of a parameter that the optimizer trains.
        WrongCheckpointError: the mask is of another model.
    """
    mask = None if mask is None else mask_of(mask)
    while not isinstance(optimizer, MaskedOptimizer) and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer  # Accelerate's is a wrapper
    if isinstance(optimizer, MaskedOptimizer):
        bound = optimizer.bind(model, mask)
        return Attachment(model, optimizer, [Fingerprinted(b.name, b.parameter, b.bits) for b in bound], [])
    if mask is None:
        raise UsageError(
            f"{type(optimizer).__name__} knows no masks, and none was given",
            hint="attach(model, optimizer, mask), MaskCallback(mask); or make it a MaskedAdamW, in a Trainer by"
            " optimizer_cls_and_kwargs=masked_adamw(args, mask)",
        )
    kept = [Kept(b.name, b.parameter, b.bits) for b in bound_to(optimizer.param_groups, model, mask)]
    _warn_if_narrow(kept)
    handles: list[Any] = []
    for one in kept:
        watch: Any = one.parameter.register_post_accumulate_grad_hook
        handles.append(watch(lambda _, one=one: one.mask_gradient()))
    handles.append(optimizer.register_step_pre_hook(partial(_each, kept, Kept.mask_gradient)))
    handles.append(optimizer.register_step_post_hook(partial(_each, kept, Kept.restore)))
    return Attachment(model, optimizer, kept, handles)


@torch.no_grad()
def _each(kept: list[Kept], act: Any, *_: object) -> None:
    for one in kept:
        act(one)


def _warn_if_narrow(kept: list[Kept]) -> None:
    narrow = [one for one in kept if one.parameter.element_size() < 4]
    if narrow:
        dtype = str(narrow[0].parameter.dtype).removeprefix("torch.")
        warnings.warn(
            f"{len(narrow)} of {len(kept)} parameters are {dtype} and have no fp32 master: a step smaller than half "
            "the distance between two values is rounded away, which is most of them at learning rates like 1e-6. "
            "maskreg.train.MaskedAdamW keeps masters of the masked coordinates alone",
            LostUpdateWarning,
            stacklevel=3,
        )
