"""AdamW on the coordinates of a mask."""

from __future__ import annotations

from typing import Any

from maskreg.train.optim.masked import MaskedOptimizer, Params
from maskreg.train.optim.step import Adam, Operands


class MaskedAdamW(MaskedOptimizer):
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101) on the coordinates of a mask.

    State takes 12 bytes a masked coordinate of bf16 weights, 8 of fp32 ones, and 3/16 of a byte for each coordinate.

    Args:
        params: see :class:`MaskedOptimizer`, also for ``options``.
        lr: learning rate.
        betas: decay of the two moments.
        eps: added to the root of the second moment.
        weight_decay: decoupled.
        options: mask, max_grad_norm, clip, gradients, backend.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        **options: Any,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}, **options)

    def _vectors(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    def _apply(self, on: Operands, group: dict[str, Any], state: dict[str, Any], scale: float) -> None:
        beta1, beta2 = group["betas"]
        now = Adam(float(group["lr"]), beta1, beta2, group["eps"], group["weight_decay"], int(state["step"]), scale)
        self._backend_of(on.weights, on.gradient.values).adamw(on, state["exp_avg"], state["exp_avg_sq"], now)
