"""SGD on the coordinates of a mask."""

from __future__ import annotations

from typing import Any

from maskreg.train.optim.masked import MaskedOptimizer, Params
from maskreg.train.optim.step import Operands, Sgd


class MaskedSGD(MaskedOptimizer):
    """SGD on the coordinates of a mask, with momentum or without.

    Args:
        params: see :class:`MaskedOptimizer`, also for ``options``.
        lr: learning rate.
        momentum: decay of the velocity; 0 keeps none.
        weight_decay: times the weights, added to the gradient.
        nesterov: Nesterov's momentum.
        options: mask, max_grad_norm, clip, gradients, backend.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        **options: Any,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
        super().__init__(params, defaults, **options)

    def _vectors(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def _apply(self, on: Operands, group: dict[str, Any], state: dict[str, Any], scale: float) -> None:
        now = Sgd(
            float(group["lr"]), group["momentum"], group["weight_decay"], group["nesterov"], int(state["step"]), scale
        )
        velocity = state["momentum_buffer"] if group["momentum"] else None
        self._backend_of(on.weights, on.gradient.values).sgd(on, velocity, now)
