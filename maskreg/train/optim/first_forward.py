"""Finding an optimizer's model when it first runs."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from maskreg.train.optim.binding import in_order


class AwaitsModel(Protocol):
    """What waits for its model."""

    param_groups: list[dict[str, Any]]

    def awaits_model(self) -> bool:
        """Whether a model is of any use now."""

    def meet(self, model: torch.nn.Module) -> None:
        """Called with the outermost module that has all parameters, before its first forward pass."""


def await_forward(optimizer: AwaitsModel) -> RemovableHandle:
    """Introduce an optimizer to the first model with all of its parameters that runs.

    An optimizer made of ``model.parameters()``, as verl and Trainer make it, knows no names. But the model has to run
    before the first step, and then a global forward pre-hook sees it::

        for each module about to run:           # the hook is called for submodules too
            if it has every parameter:          # the outermost module runs first, so it is the whole model
                optimizer.meet(module); remove the hook

    Models without the parameters, such as teachers, are skipped. The hook goes when it has served, or with the
    optimizer, which it references weakly. While it exists, ``torch.compile(model)`` warns about global hooks; this one
    does no harm.

    Returns:
        A handle that removes the hook earlier.
    """
    reference = weakref.ref(optimizer)

    def before_forward(module: torch.nn.Module, _: object) -> None:
        waiting = reference()
        if waiting is None:
            return
        ids = {id(parameter) for parameter in module.parameters()}
        if waiting.awaits_model() and all(id(p) in ids for _, p in in_order(waiting.param_groups)):
            waiting.meet(module)
            handle.remove()

    handle = register_module_forward_pre_hook(before_forward)
    weakref.finalize(optimizer, handle.remove)
    return handle
