"""What decides the result of a run, as one value that can be written, compared and shown."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from maskreg.errors import FormatError

Optimizer = Literal["adamw", "sgd"]
Gradients = Literal["dense", "packed", "in-backward"]


@dataclass(frozen=True)
class RunSetup:
    """Everything that decides the result of a run. Two runs with equal setups are the same run.

    Attributes:
        recipe: name of a recipe, or ``module:function``.
        recipe_code: sha256 of the file that defines a ``module:function``.
        source: identity of the checkpoint that training starts from.
        teacher: identity of the teacher; empty without one.
        data: sha256 of the data file.
        mask: digest of the artifact whose mask is trained; empty if all coordinates are.
        parent: digest of the artifact that was given; the mask's own, or the one that a control was made from.
        control: what is trained in place of the parent's mask: parameters of a baseline, or ``{"kind": "full"}``.
        optimizer: ``adamw`` or ``sgd``.
        lr: learning rate.
        betas: decay of AdamW's moments.
        eps: added to the root of AdamW's second moment.
        weight_decay: decoupled for AdamW.
        momentum: of SGD.
        schedule: of the learning rate, see :data:`maskreg.train.runs.request.SHAPES`.
        warmup: steps over which the learning rate rises.
        clip: largest norm of the masked gradient; 0 disables clipping.
        gradients: how gradients are stored, see :class:`maskreg.train.optim.gradients.GradientStore`.
        dtype: of the weights during training: ``stored``, or ``float32``.
        seed: of the order of the data and of sampling.
        steps: optimizer steps.
        batch: records per step, over all processes.
        micro_batch: records per forward pass, in each process.
        max_length: tokens of a prompt and its completion.
        max_new_tokens: tokens sampled per prompt, at most.
        temperature: of sampling.
        loss: for recipes that have several.
    """

    recipe: str
    source: str
    data: str
    mask: str
    recipe_code: str = ""
    teacher: str = ""
    parent: str = ""
    control: dict[str, Any] = field(default_factory=dict)
    optimizer: Optimizer = "adamw"
    lr: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    schedule: str = "constant"
    warmup: int = 0
    clip: float = 1.0
    gradients: Gradients = "packed"
    dtype: Literal["stored", "float32"] = "stored"
    seed: int = 0
    steps: int = 100
    batch: int = 8
    micro_batch: int = 8
    max_length: int = 1024
    max_new_tokens: int = 256
    temperature: float = 1.0
    loss: str = ""

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**asdict(self), "betas": list(self.betas)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> RunSetup:
        """Read a setup back."""
        known = {entry.name for entry in fields(cls)}
        if set(value) != known:
            unexpected = ", ".join(sorted(known ^ set(value)))
            raise FormatError(
                f"the run was set up by another version of maskreg: {unexpected}", hint="choose another -o"
            )
        return cls(**{**value, "betas": tuple(value["betas"])})

    def differences(self, other: RunSetup) -> list[str]:
        """Fields that differ, one line each: name, this value, the other value."""
        left, right = self.to_json(), other.to_json()
        return [f"{name}: {left[name]!r} there, {right[name]!r} now" for name in left if left[name] != right[name]]
