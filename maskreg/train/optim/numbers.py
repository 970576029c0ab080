"""Which numbers a step can be taken with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from maskreg.errors import UsageError

_FINITE: tuple[Callable[[float], bool], str] = (lambda x: 0 <= x < math.inf, "a finite number, 0 or more")
_DECAY: tuple[Callable[[float], bool], str] = (lambda x: 0 <= x < 1, "0 or more, and less than 1")

LIMITS: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "lr": _FINITE,
    "eps": _FINITE,
    "weight_decay": _FINITE,
    "momentum": _FINITE,
    "betas": _DECAY,
    "temperature": _FINITE,
    "clip": (lambda x: x >= 0, "a norm; 0 does not clip"),
    "max_grad_norm": (lambda x: x > 0, "a norm above 0; None does not clip"),
}
"""By option: whether a number will do, and which would. NaN never does."""


def check_numbers(options: Mapping[str, Any]) -> None:
    """Refuse numbers that would ruin the weights; options that :data:`LIMITS` does not have are passed over.

    Args:
        options: by name, each a number or, as the betas are, two.

    Raises:
        UsageError: which one it is, and what would do.
    """
    for name, (will_do, wanted) in LIMITS.items():
        value = options.get(name)
        if value is None:
            continue
        pair = name == "betas"
        if not all(will_do(_number(one)) for one in (value if pair else [value])) or (pair and len(value) != 2):
            raise UsageError(f"{name} cannot be {value}", hint=f"{name}: {'two numbers, each ' * pair}{wanted}")


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
