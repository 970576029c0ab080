"""Options of masked optimizers: which values can be trained with, which exclude each other, and what clipping does."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, get_args

import torch
import torch.distributed as dist

from maskreg.errors import DataError, UsageError
from maskreg.live.shards import Layout
from maskreg.train.optim.gradients import GradientMode

Clip = Literal["masked", "dense"]
NonFinite = Literal["raise", "skip", "propagate"]


class Clipping(NamedTuple):
    """How gradients are clipped.

    Attributes:
        max_norm: the largest norm that is left as it is; None does not clip.
        norm_of: whether the norm covers the masked entries or the dense gradients.
        nonfinite: whether a norm that is infinite or NaN raises, skips the step, or is multiplied by.
    """

    max_norm: float | None
    norm_of: Clip
    nonfinite: NonFinite

    @property
    def needs_norm(self) -> bool:
        """Whether a step depends on the norm."""
        return self.max_norm is not None or self.nonfinite != "propagate"

    def admits(self, norm: float) -> bool:
        """Whether a step can be taken."""
        if math.isfinite(norm) or self.nonfinite == "propagate":
            return True
        fault = f"the gradient has norm {norm}; the step was not taken"
        if self.nonfinite == "raise":
            raise DataError(fault, hint="lower lr, and look at the loss")
        warnings.warn(fault, RuntimeWarning, stacklevel=4)
        return False

    def factor(self, norm: torch.Tensor) -> float:
        """What gradients of this norm are multiplied by, as ``torch.nn.utils.clip_grad_norm_`` does: NaN if that is."""
        # In this order: min(1.0, nan) is 1.0, which would take a step without clipping.
        return 1.0 if self.max_norm is None else min(self.max_norm / (float(norm) + 1e-6), 1.0)


def total_norm(squares: Iterable[tuple[Layout, torch.Tensor | None]]) -> torch.Tensor:
    """The 2-norm of all gradients together, each coordinate counted once.

    A parameter is either complete in this process, alone or as one of several identical replicas, or sharded over a
    process group. Only sums of sharded parameters are reduced, each over its own group; replicas hold equal sums, and
    reducing those too would count them several times. On a mesh of 2 replicas x 2 shards::

        rank            0        1        2        3
        shard of w      w[:2]    w[2:]    w[:2]    w[2:]
        sum of squares  5        20       5        20       all_reduce over {0, 1} and {2, 3}
        norm            sqrt(5 + 20) everywhere, not sqrt(50)

    Sums are taken in fp64 and only the root is rounded to fp32, so that the same gradients have the same norm in any
    number of processes: the order of summation changes fp64's last bits, which rounding to fp32 drops.

    Args:
        squares: for every parameter, in the same order in all processes: its layout, and the sum of squares of the
            part of its gradient in this process, float64 0-D; None where there is no gradient.

    Returns:
        fp32, 0-D, in main memory; the same in all processes.
    """
    unsharded: list[torch.Tensor] = []
    sharded: dict[dist.ProcessGroup, torch.Tensor] = {}
    for layout, part in squares:
        group = layout.group
        if group is not None:
            # Also without a gradient here: every process of the group has to take part in the reduction.
            total = sharded.setdefault(group, torch.zeros((), dtype=torch.float64, device=layout.device))
            if part is not None:
                total += part.to(total.device)
        elif part is not None:
            unsharded.append(part)
    for group, total in sharded.items():
        dist.all_reduce(total, group=group)
    # One synchronization per device, not one per tensor.
    devices = {part.device for part in unsharded}
    stacks = [torch.stack([part for part in unsharded if part.device == device]) for device in devices]
    totals = [total.sum().cpu() for total in (*stacks, *sharded.values())]
    return torch.stack([torch.zeros((), dtype=torch.float64), *totals]).sum().sqrt().float()


_FP32_MOST = (2 - 2.0**-23) * 2.0**127
_FP32_LEAST = 2.0**-126
# Steps are taken in fp32. Below its least normal number a learning rate would count as 0.
_FP32: tuple[Callable[[float], bool], str] = (lambda x: 0 <= x <= _FP32_MOST, "from 0 to 3.4e38, so that it fits fp32")
_RATE: tuple[Callable[[float], bool], str] = (
    lambda x: x == 0 or _FP32_LEAST <= x <= _FP32_MOST,
    "0, or from 1.2e-38 to 3.4e38, so that it fits fp32",
)
_DIVISOR: tuple[Callable[[float], bool], str] = (
    lambda x: _FP32_LEAST <= x <= _FP32_MOST,
    "from 1.2e-38 to 3.4e38, so that it is not 0 in fp32: gradients that have always been 0 would be 0 / 0",
)
_DECAY: tuple[Callable[[float], bool], str] = (lambda x: 0 <= x < 1, "at least 0 and less than 1")

LIMITS: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "lr": _RATE,
    "eps": _DIVISOR,
    "weight_decay": _FP32,
    "momentum": _FP32,
    "betas": _DECAY,
    "max_grad_norm": (lambda x: x > 0, "a norm above 0; None disables clipping"),
}
"""By option: a predicate for valid numbers, which NaN never passes, and its wording."""


_OPTIONAL = ("max_grad_norm",)
# Schedules can end in rates that count as 0.
_IN_STEPS = {**LIMITS, "lr": _FP32}


def check_numbers(options: Mapping[str, Any]) -> None:
    """Reject numbers that would ruin the weights; options that are not in :data:`LIMITS` are ignored."""
    given = {name: value for name, value in options.items() if value is not None or name not in _OPTIONAL}
    _check(given, LIMITS, "")


def check_group(group: Mapping[str, Any], names: Iterable[str], label: str) -> None:
    """Reject numbers in a parameter group that would ruin the weights, which schedules and callers might have set."""
    _check({name: group.get(name) for name in names if name in LIMITS}, _IN_STEPS, f" of {label}")


def _check(options: Mapping[str, Any], limits: Mapping[str, tuple[Callable[[float], bool], str]], owner: str) -> None:
    for name, value in options.items():
        if name not in limits:
            continue
        is_valid, wording = limits[name]
        pair = name == "betas"
        items = _items(value) if pair else (value,)
        if len(items) != 1 + pair or not all(is_valid(_number(item)) for item in items):
            raise UsageError(
                f"{name}{owner} cannot be {value!r}", hint=f"{name}: {'two numbers, each ' * pair}{wording}"
            )
    # What the first step of AdamW multiplies with: see maskreg.train.optim.step.
    rate, decay = _number(options.get("lr", 0)), _number(options.get("weight_decay", 0))
    beta = _number(_items(options.get("betas", (0,)))[0])
    if max(rate * decay, rate / (1 - beta)) > _FP32_MOST:
        raise UsageError(
            f"lr{owner} cannot be {rate} with weight_decay {decay} and a first beta of {beta}: a step would leave fp32",
            hint="lr: so small that lr / (1 - beta) and lr * weight_decay are at most 3.4e38",
        )


SET_ASIDE: Mapping[str, str] = {
    "amsgrad": "it needs the largest second moment so far as well",
    "capturable": "steps read their number on the host",
    "differentiable": "steps are taken without autograd",
}
"""Options of PyTorch's optimizers that masked ones do not have, and why; what switches them off is taken."""


def check_names(options: Mapping[str, Any]) -> None:
    """Reject options that masked optimizers do not have."""
    for name, value in options.items():
        if name not in SET_ASIDE:
            raise UsageError(f"masked optimizers have no option {name}", hint="see help(maskreg.train.MaskedAdamW)")
        if value:
            raise UsageError(
                f"masked optimizers have no {name}: {SET_ASIDE[name]}",
                hint=f"leave {name} out; or torch.optim with maskreg.train.attach(model, optimizer, mask)",
            )


def check_modes(gradients: str, clip: str, nonfinite: str, max_grad_norm: float | None) -> None:
    """Reject unknown modes, and combinations that cannot work."""
    for name, value, known in (
        ("clip", clip, get_args(Clip)),
        ("gradients", gradients, get_args(GradientMode)),
        ("nonfinite", nonfinite, get_args(NonFinite)),
    ):
        if value not in known:
            raise UsageError(f"{name} cannot be {value!r}", hint=f"{name}= one of: {', '.join(known)}")
    if max_grad_norm is not None and gradients == "packed" and clip == "dense":
        raise UsageError(
            "the norm of dense gradients needs dense gradients", hint='clip="masked", or gradients="dense"'
        )


def _items(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)


def _number(value: Any) -> float:
    """NaN unless it is one number; text is none, though ``float`` reads it."""
    if isinstance(value, (str, bytes)):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last of a tensor that has several
        return math.nan
