"""How an optimizer's parameters find their names, and by those their masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from maskreg.errors import UsageError
from maskreg.live.masks import parameter_masks
from maskreg.live.wrappers import bare
from maskreg.mask.packed import Mask
from maskreg.train.optim.parameter import MaskedParameter
from maskreg.train.optim.refusals import refuse_fewer, refuse_foreign

Groups = list[dict[str, Any]]


def in_order(groups: Groups) -> list[tuple[dict[str, Any], torch.Tensor]]:
    """Every parameter with its group, in the order in which saved state numbers them."""
    return [(group, parameter) for group in groups for parameter in group["params"]]


def own_names(groups: Groups) -> dict[str, torch.Tensor]:
    """Parameters by the names that the optimizer was given with them.

    Raises:
        UsageError: there are none.
    """
    named: dict[str, torch.Tensor] = {}
    for group in groups:
        names = group.get("param_names")
        if names is None:
            raise UsageError(
                "the optimizer's parameters have no names, and no model with all of them has run yet,"
                " so their masks cannot be found",
                hint="give it model.named_parameters(), or call optimizer.bind(model)",
            )
        refuse_fewer(len(names), len(group["params"]))
        named.update(zip(names, group["params"], strict=True))
    return named


def bind_parameters(
    groups: Groups, named: Mapping[str, torch.Tensor] | torch.nn.Module, mask: Mask
) -> list[MaskedParameter]:
    """Every parameter of an optimizer with its mask, in the order of the groups.

    A parameter that was sharded after the optimizer was made is replaced in its group by the shards of that name. The
    names given with the parameters count too, and before a model's: that may be a part of the caller's model, such as
    where the loss is a method that calls it.

    Args:
        groups: of the optimizer.
        named: the model, or its parameters by name.
        mask: by the names in the checkpoint.

    Raises:
        UsageError: a parameter has no name, no mask, or is of a kind that cannot be masked.
        WrongCheckpointError: the mask is of another model.
    """
    model = named if isinstance(named, torch.nn.Module) else None
    if isinstance(named, torch.nn.Module):
        named = dict(named.named_parameters())
    names = {id(parameter): name for name, parameter in named.items()}
    _adopt_shards(groups, named, names)
    parameters = in_order(groups)
    for _, parameter in parameters:
        refuse_foreign(names.get(id(parameter), "a parameter"), parameter)
        if id(parameter) not in names:
            raise UsageError(
                "the optimizer trains parameters that the model does not have",
                hint="give it the parameters of this model, after it was sharded",
            )
    given = own_names(groups) if model is not None and all("param_names" in group for group in groups) else {}
    masks = parameter_masks({names[id(p)]: p for _, p in parameters}, mask, model, given)
    return [
        MaskedParameter.of(name, p, group, tensor_mask)
        for (group, p), (name, tensor_mask) in zip(parameters, masks, strict=True)
    ]


def _adopt_shards(groups: Groups, named: Mapping[str, torch.Tensor], names: Mapping[int, str]) -> None:
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
