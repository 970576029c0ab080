"""Optimizers on the coordinates of a mask, which can be given by name; and which weights their steps changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from maskreg.errors import UsageError
from maskreg.train.masks import MaskLike, mask_of
from maskreg.train.optim.any_optimizer import PackedOptimizer
from maskreg.train.optim.gradients import GradientMode
from maskreg.train.optim.masked import MaskedOptimizer, Params, flat_of
from maskreg.train.optim.options import Clip, NonFinite
from maskreg.train.optim.parameter import MaskedParameter, in_batches
from maskreg.train.optim.state import begin_master, begin_state, dithered
from maskreg.train.optim.step import AdamWStep, AdamWUpdate, Backend, Operands


class MaskedAdamW(MaskedOptimizer):
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101) on the coordinates of a mask.

    State takes 12 bytes per masked coordinate of bf16 weights, 8 of fp32 ones, and 3/16 of a byte per coordinate. With
    bf16 moments it takes 4 fewer, but a step makes fp32 copies of them, for 64 M coordinates or a larger parameter.

    Args:
        params: see :class:`maskreg.train.optim.MaskedOptimizer`, also for ``options``.
        lr: learning rate.
        betas: decay of the two moments.
        eps: added to the root of the second moment. It must not be 0, as it can in PyTorch, where weights whose
            gradient has always been 0 become NaN by 0 / 0, such as embeddings of tokens that no batch has had.
        weight_decay: decoupled.
        moments: ``fp32``, or ``bf16``: the first rounded to the nearest, the second up or down without bias. State that
            was saved with the other is taken.
        options: mask (``"name:tag"``, an artifact, or masks by tensor name: packed, or boolean tensors or arrays),
            max_grad_norm, clip, nonfinite, gradients, backend, maximize.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        moments: Literal["fp32", "bf16"] = "fp32",
        **options: Any,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        if moments not in ("fp32", "bf16"):
            raise UsageError(f"moments cannot be {moments!r}", hint="moments= one of: fp32, bf16")
        self._moments = torch.bfloat16 if moments == "bf16" else torch.float32
        super().__init__(params, defaults, resolve=mask_of, **options)

    def __getstate__(self) -> dict[str, Any]:
        """See :class:`maskreg.train.optim.MaskedOptimizer`."""
        return {**super().__getstate__(), "_moments": self._moments}

    def _state_of(self, item: MaskedParameter) -> dict[str, Any]:
        state = super()._state_of(item)
        begin_state(item, state, ("exp_avg", "exp_avg_sq"), self._moments)
        return state

    def _update(self, parameters: Iterable[MaskedParameter], factor: float) -> None:
        """Update parameters by their gradients times the clip factor, one call a backend."""
        for batch in in_batches(parameters):
            together: defaultdict[Backend, list[AdamWUpdate]] = defaultdict(list)
            copies, stepped = [], []
            for item in batch:
                gradient = self._store.of(item)
                if gradient is None:
                    continue
                weights, state = item.weights, self._state_of(item)
                flat = flat_of(weights)
                if weights.element_size() < 4:
                    begin_master(item, state, flat, self._backend_of(flat))
                else:
                    state.pop("master", None)  # the parameter was narrower at the last step
                state["step"] += 1
                if item.bits.nnz:
                    step = _step_of(item.group, int(state["step"]), factor)
                    operands = Operands(flat, gradient, item.bits, state.get("master"))
                    update = AdamWUpdate(operands, state["exp_avg"].float(), state["exp_avg_sq"].float(), step)
                    together[self._backend_of(flat, gradient.values)].append(update)
                    stepped.append((state, update))
                    if not weights.is_contiguous():
                        copies.append((weights, flat))
            for backend, updates in together.items():
                backend.update(updates)
            for state, (_, first, second, step) in stepped:
                state["exp_avg"] = first.to(self._moments)
                state["exp_avg_sq"] = second if self._moments == second.dtype else dithered(second, step.step)
            for weights, flat in copies:
                weights.copy_(flat.reshape(weights.shape))


def _step_of(group: dict[str, Any], number: int, factor: float) -> AdamWStep:
    beta1, beta2 = map(float, group["betas"])
    lr, eps, weight_decay = (float(group[name]) for name in ("lr", "eps", "weight_decay"))
    return AdamWStep(lr, beta1, beta2, eps, weight_decay, number, -factor if group["maximize"] else factor)


class Masked(PackedOptimizer):
    """An optimizer of any class that steps each coordinate by itself, on the coordinates of a mask.

    Its state takes what it takes for as many parameters as the mask has coordinates, and a master copy of 4 bytes for
    each. Optimizers of matrices (Muon, SOAP) or with a statistic of a whole tensor (Adafactor, LAMB) are refused:
    :func:`maskreg.train.attach` holds them to a mask.

    ``torchao.optim.AdamW8bit`` and ``AdamW4bit`` quantize moments in blocks of masked coordinates; vectors below 4,096
    entries keep theirs in fp32. A run resumes to the bit where each process has the part of the model that it had;
    state from other parts is refused, by DataError or by torch.distributed.checkpoint.

    Example::

        optimizer = Masked(model.named_parameters(), torch.optim.NAdam, mask="lab/sums-opd:v1", lr=1e-5)

    Args:
        params: see :class:`maskreg.train.optim.MaskedOptimizer`, also for what else has a default.
        optimizer: the class, or a function that makes one of parameters and options.
        mask: ``"name:tag"``, an artifact, or masks by tensor name: packed, or boolean tensors or arrays.
        options: of the optimizer.

    Raises:
        UsageError: the optimizer does not step coordinates by themselves, or swaps weights in ``eval()``.
    """

    def __init__(
        self,
        params: Params,
        optimizer: Callable[..., torch.optim.Optimizer],
        *,
        mask: MaskLike | None = None,
        max_grad_norm: float | None = None,
        clip: Clip = "masked",
        nonfinite: NonFinite = "raise",
        gradients: GradientMode = "dense",
        backend: Backend | None = None,
        **options: Any,
    ) -> None:
        own: dict[str, Any] = {"mask": mask, "max_grad_norm": max_grad_norm, "clip": clip, "nonfinite": nonfinite}
        own |= {"gradients": gradients, "backend": backend}
        super().__init__(params, optimizer, resolve=mask_of, own=own, options=options)


def changed(optimizer: Any) -> Iterator[tuple[str, npt.NDArray[np.int64], npt.NDArray[Any]]]:
    """What has changed of the weights in this process since the last call, found among masked coordinates alone.

    Applied to a copy of the weights as they were at the last call, it gives the weights bit for bit. The first call
    gives all masked coordinates, which leads from the mask's source to the weights. The bits of masked weights are kept
    for the next call, 2 bytes for each of bf16. Weights outside the mask, which no step changes, are not looked at;
    weights that were loaded are, once a step has taken them over.

    Args:
        optimizer: a masked optimizer, wrapped by Accelerate or not, that has met its model.

    Yields:
        The name of a parameter in the model; positions in its flat local part, int64 ``[k]``, ascending; and its bits
        there, unsigned integers of its width ``[k]``, uint16 of bf16. Each parameter comes at least once, and at the
        first call a large one in several parts. Parameters that are not asked for stay for the next call.

    Raises:
        UsageError: the optimizer is not a masked one, or has not met its model.
    """
    while not isinstance(optimizer, MaskedOptimizer) and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    if not isinstance(optimizer, MaskedOptimizer):
        raise UsageError(
            f"{type(optimizer).__name__} does not know what it can change",
            hint="train with MaskedAdamW or Masked",
        )
    return optimizer.changed()
