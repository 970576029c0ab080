"""One run: on-policy distillation from the source on one mask with one seed, measured and written down."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import torch

from maskreg.mask.packed import Mask
from maskreg.train import MaskedAdamW, MaskedSGD
from maskreg.train.optim.plain import Plain
from maskreg.train.recipes.rollout import sample
from scripts.reproduce.masks import Which, mask_for
from scripts.reproduce.setting import SAMPLES_SEED, Setting, batches
from scripts.reproduce.student import PAD, Student, distance, lessons, load, measure

MASK_BYTES = 3 / 16
"""Of a coordinate: its bit, and its share of the rank index."""


TIMED_STEPS = 15


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        arm: its name in tables.
        seed: of prompts, samples and, where chance draws it, of the mask.
        which: mask.
        lr: learning rate.
        optimizer: AdamW or SGD.
        keep: folder to write the trained checkpoint into.
        shadow: steps after which torch's AdamW on fp32 copies is compared bit for bit; the run ends there. 0 for none.
    """

    arm: str
    seed: int
    which: Which
    lr: float
    optimizer: Literal["adamw", "sgd"] = "adamw"
    keep: str = ""
    shadow: int = 0

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.arm.replace(' ', '-')}-{self.seed}"


def run(setting: Setting, job: Job, registry: Path) -> dict[str, Any]:
    """Train and measure.

    Args:
        setting: of all runs.
        job: this run.
        registry: folder of the store with the masks.

    Returns:
        What is written down.

    Raises:
        AssertionError: a coordinate outside the mask has changed.
    """
    torch.manual_seed(0)  # nothing should depend on it
    mask, digest = mask_for(job.which, setting, registry)
    student, teacher = Student(setting.path("source")), _teacher(setting.path("teacher"))
    optimizer = optimizer_of(student, mask, job, setting)
    shadow = Shadow(student, job, setting) if job.shadow else None
    train, held_out = lessons(setting.path("source"))
    began, losses, step_seconds = time.monotonic(), [], []
    steps = job.shadow or setting.steps
    for step, chosen in enumerate(batches(len(train.prompts), setting.batch, steps, job.seed)):
        prompts = [train.prompts[number] for number in chosen]
        own = sample(
            student.compute, prompts, tokens=setting.tokens, ends=[train.end], pad=PAD, seed=job.seed, step=step
        )
        loss = distance(student.compute, teacher, own)
        loss.backward()  # type: ignore[no-untyped-call]
        student.hand_back()
        if shadow:
            shadow.step(student)
        begun = time.perf_counter()
        optimizer.step()
        step_seconds.append(time.perf_counter() - begun)
        student.refresh()
        losses.append(loss.item())
        if shadow:
            shadow.check(student)
    if job.keep:
        student.weights.save_pretrained(job.keep)
    return {
        "arm": job.arm,
        "seed": job.seed,
        "lr": job.lr,
        "optimizer": job.optimizer,
        "mask": digest,
        "held_out": measure(student.compute, teacher, held_out, tokens=setting.tokens, seed=SAMPLES_SEED),
        "train": measure(student.compute, teacher, train, tokens=setting.tokens, seed=None),
        "losses": losses,
        "seconds": time.monotonic() - began,
        "step_seconds": median(step_seconds),
        "optimizer_bytes": optimizer_bytes(optimizer),
        **changes(student, optimizer, mask),
    }


def look_at(setting: Setting, name: str) -> dict[str, Any]:
    """What the source or the teacher itself measures."""
    model, teacher = load(setting.path(name), torch.float32), _teacher(setting.path("teacher"))
    train, held_out = lessons(setting.path("source"))
    return {
        "arm": name,
        "seed": None,
        "held_out": measure(model, teacher, held_out, tokens=setting.tokens, seed=SAMPLES_SEED),
        "train": measure(model, teacher, train, tokens=setting.tokens, seed=None),
    }


def time_steps(setting: Setting, job: Job, registry: Path) -> dict[str, Any]:
    """Median time of the optimizer's step alone, on gradients of chance, while no other run shares the machine."""
    mask, _ = mask_for(job.which, setting, registry)
    student = Student(setting.path("source"))
    optimizer = optimizer_of(student, mask, job, setting)
    chance, seconds = torch.Generator().manual_seed(0), []
    for _ in range(TIMED_STEPS):
        for parameter in student.weights.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=chance).to(parameter.dtype)
        begun = time.perf_counter()
        optimizer.step()
        seconds.append(time.perf_counter() - begun)
    return {"arm": job.arm, "step_seconds": median(seconds)}


def optimizer_of(student: Student, mask: Mask, job: Job, setting: Setting) -> Any:
    """What trains the student."""
    named = student.weights.named_parameters()
    if job.optimizer == "sgd":
        return MaskedSGD(named, lr=job.lr, mask=mask)
    # Only PyTorch's own operations are equal to its optimizers bit for bit.
    exact: dict[str, Any] = {"backend": Plain()} if job.shadow else {}
    return MaskedAdamW(named, lr=job.lr, weight_decay=setting.weight_decay, mask=mask, **exact)


def optimizer_bytes(optimizer: Any) -> int:
    """Of its state, mask included."""
    values: list[Any] = [value for state in optimizer.state.values() for value in state.values()]
    held = sum(int(value.nbytes) for value in values if torch.is_tensor(value))
    coordinates = sum(int(p.numel()) for group in optimizer.param_groups for p in group["params"])
    return held + round(MASK_BYTES * coordinates)


@torch.no_grad()
def changes(student: Student, optimizer: Any, mask: Mask) -> dict[str, Any]:
    """Densities and norms of what has changed since the source, in masters and in bf16."""
    numel = nnz = moved = outside = 0
    master_energy = visible_energy = 0.0
    for name, now in student.weights.named_parameters():
        before = student.start[name]
        inside = torch.from_numpy(np.asarray(mask[name].to_bool()))
        changed = now.view(torch.int16) != before.view(torch.int16)
        numel, nnz = numel + now.numel(), nnz + int(inside.sum())
        moved, outside = moved + int(changed.sum()), outside + int((changed & ~inside).sum())
        visible_energy += float((now.double() - before.double()).square().sum())
        master = optimizer.state[now].get("master")
        if master is not None:
            master_energy += float((master.double() - before[inside].double()).square().sum())
    assert outside == 0, f"{outside} coordinates outside the mask have changed"
    return {
        "density": nnz / numel,
        "visible_density": moved / numel,
        "master_norm": master_energy**0.5,
        "visible_norm": visible_energy**0.5,
    }


class Shadow:
    """torch.optim.AdamW on fp32 copies, given the same gradients: what the full arm must be equal to, bit for bit."""

    def __init__(self, student: Student, job: Job, setting: Setting) -> None:
        self.copies = {n: torch.nn.Parameter(p.detach().float()) for n, p in student.weights.named_parameters()}
        self.optimizer = torch.optim.AdamW(
            self.copies.values(), lr=job.lr, weight_decay=setting.weight_decay, foreach=False
        )

    def step(self, student: Student) -> None:
        """Take the step that the student is about to take."""
        for name, parameter in student.weights.named_parameters():
            assert parameter.grad is not None
            self.copies[name].grad = parameter.grad.float()
        self.optimizer.step()

    def check(self, student: Student) -> None:
        """Compare bits.

        Raises:
            AssertionError: they differ.
        """
        for name, parameter in student.weights.named_parameters():
            cast = self.copies[name].detach().to(parameter.dtype)
            assert torch.equal(cast.view(torch.int16), parameter.detach().view(torch.int16)), name


@cache
def _teacher(path: Path) -> Any:
    return load(path, torch.float32).requires_grad_(False)
