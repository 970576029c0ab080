"""How parameters find their names, and with those their masks."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from maskreg.errors import UsageError
from maskreg.live.masks import parameter_masks
from maskreg.live.wrappers import bare
from maskreg.mask.packed import Mask
from maskreg.train.optim.bound import Bound
from maskreg.train.optim.refusals import refuse_fewer, refuse_foreign

if TYPE_CHECKING:
    from maskreg.train.optim.masked import MaskedOptimizer

Groups = list[dict[str, Any]]


def in_order(groups: Groups) -> list[tuple[dict[str, Any], torch.Tensor]]:
    """Every parameter with its group, as they are numbered in saved state."""
    return [(group, parameter) for group in groups for parameter in group["params"]]


def own_names(groups: Groups) -> dict[str, torch.Tensor]:
    """Parameters by the names that were given with them.

    Raises:
        UsageError: there are none.
    """
    named: dict[str, torch.Tensor] = {}
    for group in groups:
        names = group.get("param_names")
        if names is None:
            raise UsageError(
                "the optimizer's parameters have no names, and no model that has them all has run,"
                " so their masks cannot be found",
                hint="give it model.named_parameters(), or call optimizer.bind(model)",
            )
        refuse_fewer(len(names), len(group["params"]))
        named.update(zip(names, group["params"], strict=True))
    return named


def bound_to(groups: Groups, named: Mapping[str, torch.Tensor] | torch.nn.Module, mask: Mask) -> list[Bound]:
    """Every parameter of an optimizer with its mask.

    A parameter that the model no longer has, because it was sharded since, gives way to the shards under its name.

    Args:
        groups: of the optimizer.
        named: the model, or its parameters by name.
        mask: by the names in the checkpoint.

    Raises:
        UsageError: a parameter has no name or no mask, or is of a kind that masks are not for.
        WrongCheckpointError: the mask is of another model.
    """
    model = named if isinstance(named, torch.nn.Module) else None
    if isinstance(named, torch.nn.Module):
        named = dict(named.named_parameters())
    names = {id(parameter): name for name, parameter in named.items()}
    _renew(groups, named, names)
    places = in_order(groups)
    for _, parameter in places:
        refuse_foreign(names.get(id(parameter), "a parameter"), parameter)
        if id(parameter) not in names:
            raise UsageError(
                "the optimizer trains parameters that the model does not have",
                hint="give it the parameters of this model, after it was sharded",
            )
    masks = parameter_masks({names[id(p)]: p for _, p in places}, mask, model)
    return [Bound.of(name, p, group, one) for (group, p), (name, one) in zip(places, masks, strict=True)]


def _renew(groups: Groups, named: Mapping[str, torch.Tensor], names: Mapping[int, str]) -> None:
    by_name = {bare(name): parameter for name, parameter in named.items()}
    for group in groups:
        given = group.get("param_names")
        if given is None or len(given) != len(group["params"]):
            continue
        for number, (name, old) in enumerate(zip(given, group["params"], strict=True)):
            new = by_name.get(bare(name))
            if new is None or id(old) in names or new.shape != old.shape:
                continue
            if hasattr(new, "to_local") and not hasattr(old, "to_local"):
                group["params"][number] = new


def await_forward(optimizer: MaskedOptimizer) -> RemovableHandle:
    """Bind an optimizer when a model that has its parameters runs for the first time.

    Models without them, such as teachers, are passed over. The hook goes with the first that has them, or with the
    optimizer. While it is there, ``torch.compile(model)`` warns that there are global hooks; it does this one no harm.

    Returns:
        What takes the hook away earlier.
    """
    reference = weakref.ref(optimizer)

    def see(module: torch.nn.Module, _: object) -> None:
        waiting = reference()
        if waiting is None:
            return
        ids = {id(parameter) for parameter in module.parameters()}
        if waiting.awaits_model() and all(id(p) in ids for _, p in in_order(waiting.param_groups)):
            waiting.met(module)
            handle.remove()

    handle = register_module_forward_pre_hook(see)
    weakref.finalize(optimizer, handle.remove)
    return handle
