"""What a run is: everything that decides its result, as one value that can be written, compared and shown."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from maskreg.errors import FormatError

Optimizer = Literal["adamw", "sgd"]
Gradients = Literal["dense", "packed", "in-backward"]


@dataclass(frozen=True)
class Setup:
    """Everything that decides what a run gives. Two runs with equal setups are one run.

    Attributes:
        recipe: name of a recipe, or ``module:function``.
        recipe_code: sha256 of the file that a ``module:function`` is in.
        source: identity of the checkpoint that training starts from.
        teacher: identity of the teacher; empty when there is none.
        data: sha256 of the data file.
        mask: digest of the artifact whose mask is trained; empty when all coordinates are.
        parent: digest of the artifact that was named; the mask's own, or what a control was made of.
        control: what is trained in place of the parent's mask: a baseline's recipe, or ``{"kind": "full"}``.
        optimizer: ``adamw`` or ``sgd``.
        lr: learning rate.
        betas: decay of AdamW's moments.
        eps: added to the root of AdamW's second moment.
        weight_decay: decoupled for AdamW.
        momentum: of SGD.
        schedule: of the learning rate, see :data:`maskreg.train.runs.schedule.SHAPES`.
        warmup: steps over which the learning rate rises.
        clip: largest norm of the masked gradient; 0 does not clip.
        gradients: how gradients wait for the step, see :class:`maskreg.train.optim.MaskedOptimizer`.
        dtype: of the weights while they are trained: ``stored``, or ``float32``.
        seed: of the order of the data, and of whatever else chance decides.
        steps: of the optimizer.
        batch: records of a step, on all processes together.
        micro_batch: records that go through the model at once, in each process.
        max_length: tokens of a prompt and what follows it.
        max_new_tokens: that are sampled after a prompt.
        temperature: of sampling.
        loss: of recipes that have several.
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
    def from_json(cls, value: dict[str, Any]) -> Setup:
        """Read a setup back.

        Raises:
            FormatError: it is of another version.
        """
        known = {one.name for one in fields(cls)}
        if set(value) != known:
            odd = ", ".join(sorted(known ^ set(value)))
            raise FormatError(f"the run was set up by another version of maskreg: {odd}", hint="choose another -o")
        return cls(**{**value, "betas": tuple(value["betas"])})

    def difference(self, other: Setup) -> list[str]:
        """What differs, one line each: the field, this value, and the other."""
        mine, theirs = self.to_json(), other.to_json()
        return [f"{name}: {mine[name]!r} there, {theirs[name]!r} now" for name in mine if mine[name] != theirs[name]]


@dataclass(frozen=True)
class Places:
    """Where a run finds what its setup names, and what of it changes nothing in the result.

    Attributes:
        source: folder of the checkpoint that training starts from.
        teacher: folder of the teacher; empty when there is none.
        data: the data file.
        home: folder of the registry that has the mask.
        device: ``cpu`` or ``cuda``.
        parallel: how several processes share the work: ``fsdp`` or ``ddp``.
        save_every: steps between checkpoints.
    """

    source: str
    data: str
    home: str
    teacher: str = ""
    device: str = "cpu"
    parallel: Literal["fsdp", "ddp"] = "fsdp"
    save_every: int = 50
