"""Options of masked optimizers: which values can be trained with, and which exclude each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from maskreg.errors import UsageError
from maskreg.train.optim.clipping import Clip, NonFinite
from maskreg.train.optim.gradients import GradientMode

_FINITE: tuple[Callable[[float], bool], str] = (lambda x: 0 <= x < math.inf, "a finite number, at least 0")
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
    "temperature": _FINITE,
    "clip": (lambda x: x >= 0, "a norm; 0 disables clipping"),
    "max_grad_norm": (lambda x: x > 0, "a norm above 0; None disables clipping"),
}
"""By option: a predicate for valid numbers, which NaN never passes, and its wording."""


_OPTIONAL = ("max_grad_norm",)
# Schedules may end in rates that count as 0.
_IN_STEPS = {**LIMITS, "lr": _FP32}


def check_numbers(options: Mapping[str, Any]) -> None:
    """Reject numbers that would ruin the weights; options that are not in :data:`LIMITS` are ignored."""
    given = {name: value for name, value in options.items() if value is not None or name not in _OPTIONAL}
    _check(given, LIMITS, "")


def check_group(group: Mapping[str, Any], names: Iterable[str], label: str) -> None:
    """Reject numbers in a parameter group that would ruin the weights, which schedules and callers may have set."""
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
    _check_products(options, owner)


def _check_products(options: Mapping[str, Any], owner: str) -> None:
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
    "dampening": "the velocity adds gradients undamped",
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
    if max_grad_norm is None:
        return
    if gradients == "packed" and clip == "dense":
        raise UsageError(
            "the norm of dense gradients needs dense gradients", hint='clip="masked", or gradients="dense"'
        )
    if gradients == "in-backward":
        raise UsageError(
            "clipping needs all gradients before the first parameter is updated",
            hint='gradients="packed", which takes 4 bytes per masked coordinate',
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
