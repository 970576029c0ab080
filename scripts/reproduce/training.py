"""One training run: on-policy distillation of the source on one mask with one seed, and its measurements."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from maskreg.mask.packed import Mask
from maskreg.train import MaskedAdamW
from maskreg.train.optim.backends import Plain
from scripts.reproduce.losses import log_probabilities
from scripts.reproduce.masks import MaskSpec, open_mask
from scripts.reproduce.rollout import Randomness, Sampling, given, logits_of, sample
from scripts.reproduce.setting import SAMPLES_SEED, Setting, batches
from scripts.reproduce.student import PAD, Student, lessons, load, measure, reverse_kl_of

MASK_BYTES = 3 / 16
"""Bytes for each coordinate: its bit, and its share of the rank index."""

Objective = Literal["reverse KL", "cross entropy"]
"""Reverse KL to the teacher on the student's own samples, or the negative log-likelihood of right answers."""


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        arm: its name in tables.
        seed: of prompts, samples and a random mask.
        mask: to train on.
        objective: what it minimizes.
        mask_seed: of the run that gave the mask; None for a mask that no run of this setting gave.
        checkpoint: folder for the trained checkpoint; empty for none.
        checked_steps: the run ends after so many steps, each compared with torch.optim.AdamW on fp32 copies, bit for
            bit; 0 for a whole run without that.
    """

    arm: str
    seed: int
    mask: MaskSpec
    objective: Objective = "reverse KL"
    mask_seed: int | None = None
    checkpoint: str = ""
    checked_steps: int = 0

    @property
    def name(self) -> str:
        """Name of its record: the arm, the seed of its mask where it has one, and its own."""
        mask = "" if self.mask_seed is None else f"-m{self.mask_seed}"
        return f"{slug(self.arm)}{mask}-{self.seed}"


def slug(name: str) -> str:
    """A name as a part of a file's name."""
    return re.sub("[^A-Za-z0-9.]+", "-", name)


def train(setting: Setting, job: Job, registry: Path) -> dict[str, Any]:
    """Train and measure."""
    torch.manual_seed(0)  # nothing depends on it; samples have generators of their own
    mask, digest = open_mask(job.mask, setting, registry)
    student, teacher = Student(setting.path("source")), teacher_of(setting.path("teacher"))
    optimizer = optimizer_of(student, mask, job, setting)
    reference = Reference(student, setting) if job.checked_steps else None
    training, held_out = lessons(setting.path("source"))
    start, losses = time.process_time(), []
    steps = job.checked_steps or setting.steps
    for step, chosen in enumerate(batches(len(training.prompts), setting.batch, steps, job.seed)):
        prompts, answers = ([lists[number] for number in chosen] for lists in (training.prompts, training.answers))
        if job.objective == "cross entropy":
            rollout = given(prompts, answers, pad=PAD)
            likelihood = log_probabilities(logits_of(student.compute, rollout), rollout.completions, rollout.counted)
            loss = -likelihood.sum() / float(rollout.counted.sum())
        else:
            sampling = Sampling(setting.tokens, training.end, PAD)
            rollout = sample(student.compute, prompts, sampling, Randomness(job.seed, step))
            loss = reverse_kl_of(student.compute, teacher, rollout)
        loss.backward()  # type: ignore[no-untyped-call]
        student.hand_back()
        if reference:
            reference.step(student)
        optimizer.step()
        student.refresh()
        losses.append(loss.item())
        if reference:
            reference.check(student)
    if job.checkpoint:
        student.weights.save_pretrained(job.checkpoint)
    return {
        "arm": job.arm,
        "seed": job.seed,
        "mask_seed": job.mask_seed,
        "objective": job.objective,
        "mask": digest,
        "held_out": measure(student.compute, teacher, held_out, tokens=setting.tokens, seed=SAMPLES_SEED),
        "train": measure(student.compute, teacher, training, tokens=setting.tokens, seed=None),
        "losses": losses,
        "cpu_seconds": time.process_time() - start,
        "optimizer_bytes": optimizer_bytes(optimizer),
        **changes(student, optimizer, mask),
    }


def evaluate(setting: Setting, name: str) -> dict[str, Any]:
    """Measurements of the source or the teacher itself."""
    model, teacher = load(setting.path(name), torch.float32), teacher_of(setting.path("teacher"))
    training, held_out = lessons(setting.path("source"))
    return {
        "arm": name,
        "seed": None,
        "held_out": measure(model, teacher, held_out, tokens=setting.tokens, seed=SAMPLES_SEED),
        "train": measure(model, teacher, training, tokens=setting.tokens, seed=None),
    }


def optimizer_of(student: Student, mask: Mask, job: Job, setting: Setting) -> Any:
    """The optimizer that trains the student."""
    named = student.weights.named_parameters()
    # Only PyTorch operations equal its optimizers bit for bit.
    exact: dict[str, Any] = {"backend": Plain()} if job.checked_steps else {}
    return MaskedAdamW(named, lr=setting.lr, weight_decay=setting.weight_decay, mask=mask, **exact)


def optimizer_bytes(optimizer: Any) -> int:
    """Bytes of its state, mask included."""
    values: list[Any] = [value for state in optimizer.state.values() for value in state.values()]
    state_bytes = sum(int(value.nbytes) for value in values if torch.is_tensor(value))
    coordinates = sum(int(p.numel()) for group in optimizer.param_groups for p in group["params"])
    return state_bytes + round(MASK_BYTES * coordinates)


@torch.no_grad()
def changes(student: Student, optimizer: Any, mask: Mask) -> dict[str, Any]:
    """Densities and norms of the change since the source, in masters and in bf16."""
    numel = nnz = moved = outside = 0
    master_energy = visible_energy = 0.0
    for name, weights in student.weights.named_parameters():
        before = student.start[name]
        inside = torch.from_numpy(np.asarray(mask[name].to_bool()))
        changed = weights.view(torch.int16) != before.view(torch.int16)
        numel, nnz = numel + weights.numel(), nnz + int(inside.sum())
        moved, outside = moved + int(changed.sum()), outside + int((changed & ~inside).sum())
        visible_energy += float((weights.double() - before.double()).square().sum())
        master = optimizer.state[weights]["master"]
        master_energy += float((master.double() - before[inside].double()).square().sum())
    assert outside == 0, f"{outside} coordinates outside the mask have changed"
    return {
        "density": nnz / numel,
        "visible_density": moved / numel,
        "master_norm": master_energy**0.5,
        "visible_norm": visible_energy**0.5,
    }


class Reference:
    """torch.optim.AdamW on fp32 copies with the same gradients; the full arm must equal it bit for bit."""

    def __init__(self, student: Student, setting: Setting) -> None:
        self.copies = {n: torch.nn.Parameter(p.detach().float()) for n, p in student.weights.named_parameters()}
        self.optimizer = torch.optim.AdamW(
            self.copies.values(), lr=setting.lr, weight_decay=setting.weight_decay, foreach=False
        )

    def step(self, student: Student) -> None:
        """Take the same step as the student."""
        for name, parameter in student.weights.named_parameters():
            assert parameter.grad is not None
            self.copies[name].grad = parameter.grad.float()
        self.optimizer.step()

    def check(self, student: Student) -> None:
        """Compare the bits of the weights."""
        for name, parameter in student.weights.named_parameters():
            cast = self.copies[name].detach().to(parameter.dtype)
            assert torch.equal(cast.view(torch.int16), parameter.detach().view(torch.int16)), name


@cache
def teacher_of(path: Path) -> Any:
    """A checkpoint as a model in fp32 that is not trained; loaded once."""
    return load(path, torch.float32).requires_grad_(False)
