"""A request to train, before it is checked against any file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args

from maskreg.errors import UsageError
from maskreg.mask.baseline import KINDS, BaselineSpec
from maskreg.train.recipes.setup import Gradients, Optimizer, RunSetup

SHAPES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}
"""By name: share of the full rate, as a function of the share of the steps after warmup that are done."""


def rate(shape: str, lr: float, *, step: int, steps: int, warmup: int = 0) -> float:
    """Learning rate of one step.

    Warmup rises linearly to the full rate at its last step. The shape begins with the step after, and would reach its
    end one step after the last.

    Args:
        shape: one of :data:`SHAPES`.
        lr: the full rate.
        step: from 0.
        steps: of the whole run.
        warmup: steps of linear rise.
    """
    if step < warmup:
        return lr * (step + 1) / warmup
    return lr * SHAPES[shape]((step - warmup) / max(steps - warmup, 1))


FULL = "full"
"""The control that trains every coordinate."""

CONTROLS = (FULL, *KINDS)
"""What may be trained in place of a mask."""

SGD_LR = 1e-2
"""The default learning rate of SGD (Dense Supervision, Sparse Updates, arXiv 2606.13657)."""

OPTIONS = (
    "optimizer", "lr", "betas", "eps", "weight_decay", "momentum", "clip", "schedule", "warmup", "gradients", "dtype",
    "steps", "batch", "micro_batch", "seed", "max_new_tokens", "temperature",
)  # fmt: skip
"""Fields of :class:`RunSetup` that can be requested as they are."""

_ONE_OF: dict[str, tuple[str, ...]] = {
    "optimizer": get_args(Optimizer),
    "gradients": get_args(Gradients),
    "dtype": ("stored", "float32"),
    "schedule": tuple(SHAPES),
    "device": ("auto", "cpu", "cuda"),
    "parallel": ("fsdp", "ddp"),
}
"""Options that are one of a few words."""

_AT_LEAST = {
    "steps": 1, "batch": 1, "micro_batch": 1, "max_new_tokens": 1, "save_every": 1, "max_length": 2,
    "warmup": 0, "seed": 0, "control_seed": 0,
}  # fmt: skip
"""Options that are whole numbers, and the smallest."""


@dataclass(frozen=True)
class RunRequest:
    """A requested run.

    Attributes:
        recipe: name of a recipe, or ``module:function``.
        data: the data file.
        teacher: path or hub id; empty without one.
        loss: of the recipe; empty for its default.
        control: one of :data:`CONTROLS`; empty to train the mask itself.
        control_seed: of a random control; None for 0.
        control_density: of a ``subset``.
        max_length: tokens of prompt and completion; None for the model's limit, at most 1,024.
        device: ``auto``, ``cpu`` or ``cuda``.
        parallel: how several processes share the model.
        save_every: steps between checkpoints.
        download: fetch hub checkpoints that are not in the cache.
        options: some of :data:`OPTIONS`; None, or a missing one, means the default.
    """

    recipe: str
    data: Path
    teacher: str = ""
    loss: str = ""
    control: str = ""
    control_seed: int | None = None
    control_density: float | None = None
    max_length: int | None = None
    device: str = "auto"
    parallel: Literal["fsdp", "ddp"] = "fsdp"
    save_every: int = 50
    download: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, recipe: str, data: str | Path, **options: Any) -> RunRequest:
        """A request from options by name, setup options among them."""
        if not str(data):
            raise UsageError("the path of the data is empty", hint="data: a file with one JSON object per line")
        own = {entry.name for entry in fields(cls)} - {"recipe", "data", "options"}
        if unknown := sorted(set(options) - own - set(OPTIONS)):
            raise UsageError(f"unknown option {unknown[0]!r}", hint=f"one of: {', '.join(sorted({*own, *OPTIONS}))}")
        for name, value in options.items():
            if value is not None or name in ("device", "parallel", "save_every"):
                _check_option(name, value)
        return cls(
            recipe,
            Path(data),
            **{name: value for name, value in options.items() if name in own},
            options={name: value for name, value in options.items() if name in OPTIONS},
        )

    def control_spec(self) -> BaselineSpec | None:
        """How the control's mask is made; None for the mask itself, and for all coordinates."""
        given = {"seed": self.control_seed, "density": self.control_density}
        if self.control and self.control not in CONTROLS:
            raise UsageError(f"there is no control {self.control!r}", hint=f"--control {', '.join(CONTROLS)}")
        if not self.control or self.control == FULL:
            if unused := [name for name, value in given.items() if value is not None]:
                trained = "all coordinates" if self.control else "the mask itself"
                raise UsageError(
                    f"--control-{unused[0]} is for controls, but {trained} would be trained", hint="add --control KIND"
                )
            return None
        with control_options():
            return BaselineSpec.of(self.control, seed=self.control_seed, density=self.control_density)

    def setup_options(self) -> dict[str, Any]:
        """All of :data:`OPTIONS` that are requested, with defaults that depend on each other."""
        options = {name: value for name, value in self.options.items() if value is not None}
        # DistributedDataParallel averages gradients after the backward pass, so they have to stay dense.
        options.setdefault("gradients", "dense" if self.parallel == "ddp" else "packed")
        options.setdefault("clip", 0.0 if options["gradients"] == "in-backward" else RunSetup.clip)
        options.setdefault("lr", SGD_LR if options.get("optimizer") == "sgd" else RunSetup.lr)
        options.setdefault("micro_batch", options.get("batch", RunSetup.batch))
        return options


def _check_option(name: str, value: object) -> None:
    if name in _ONE_OF and value not in _ONE_OF[name]:
        raise UsageError(f"{name} cannot be {value!r}", hint=f"{name}= one of: {', '.join(_ONE_OF[name])}")
    if name in _AT_LEAST:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or cast("int", value) < _AT_LEAST[name]:
            raise UsageError(f"{name} cannot be {value!r}", hint=f"{name}: a whole number, at least {_AT_LEAST[name]}")
    if name == "control_density" and not isinstance(value, int | float):
        raise UsageError(f"{name} cannot be {value!r}", hint=f"{name}: a number from 0 to 1")


@contextmanager
def control_options() -> Iterator[None]:
    """Put the names of a control's options into the hints about a baseline."""
    try:
        yield
    except UsageError as error:
        raise UsageError(
            error.message, hint=re.sub(r"\b(?:an?|the) (density|seed)\b", r"--control-\1", error.hint)
        ) from error
