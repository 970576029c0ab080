"""The weights of a model that several processes hold together, brought to the first of them parameter by parameter.

Every process takes part, in one order: all hold one whole parameter for a moment, and the first process copies it to
host memory. So no process ever has the whole model on its device, and only the first has it at all.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from maskreg.live.processes import Processes


def whole_state(
    model: torch.nn.Module | Mapping[str, torch.Tensor], processes: Processes
) -> dict[str, torch.Tensor] | None:
    """The whole tensors of a sharded model, in the host memory of the first process; None in the others.

    Args:
        model: a module or its state dict, with DTensors.
        processes: those that hold it; all of them call this.
    """
    is_first = processes.rank == processes.ranks[0]
    named = (model.state_dict(keep_vars=True) if isinstance(model, torch.nn.Module) else model).items()
    wholes: dict[str, torch.Tensor] = {}
    for name, value in named:
        if isinstance(value, torch.Tensor):
            whole = value.detach()
            if hasattr(whole, "full_tensor"):
                whole = whole.full_tensor()
            if is_first:
                wholes[name] = whole.cpu()
    return wholes if is_first else None
