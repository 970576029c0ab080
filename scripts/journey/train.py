"""Trains the demo's checkpoints: a source, a teacher, and the target of a real on-policy distillation.

The student samples its own continuations; the teacher scores the same tokens; the loss is the reverse KL over the
whole vocabulary, averaged over the sampled tokens. AdamW works on fp32 master weights; the files hold their bf16 casts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from scripts.journey.model import (
    PROMPT_TOKENS,
    Shape,
    accuracy,
    load_model,
    make_model,
    prompts,
    questions,
    sample,
    save_model,
    windows,
    write_prompts,
)


@dataclass(frozen=True)
class TrainingPlan:
    """Everything that determines the result.

    Attributes:
        source_steps: of language modeling, from random weights to the source.
        teacher_steps: of language modeling, from the source to the teacher.
        steps: of distillation.
        seconds: time limit of the distillation; 0 for none.
        batch: sequences in a step.
        tokens: that the student samples after each prompt.
        learning_rate: of the distillation; that of language modeling is fixed.
        seed: of weights, text and sampling.
        shape: of the model.
    """

    source_steps: int = 250
    teacher_steps: int = 350
    steps: int = 120
    seconds: float = 0.0
    batch: int = 64
    tokens: int = 24
    learning_rate: float = 1e-6
    seed: int = 0
    shape: Shape = field(default_factory=Shape)


@dataclass(frozen=True)
class Distilled:
    """Results of the distillation, measured on held-out questions.

    KL is the reverse KL in nats per token, on continuations that the measured model samples itself.
    """

    steps: int
    seconds: float
    kl_before: float
    kl_after: float
    accuracy_source: float
    accuracy_target: float
    accuracy_teacher: float


def say(text: str) -> None:
    """Print progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def learn_language(model: Any, steps: int, seed: int) -> None:
    """Ordinary next-token training on correct sums, in place."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=max(steps, 1))
    for _ in range(steps):
        text = windows(32, 36, generator)
        logits = model(input_ids=text[:, :-1]).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def reverse_kl(student: Any, teacher: Any, sequence: Tensor) -> Tensor:
    """Mean over the continuation's tokens of KL(student || teacher), full vocabulary, in nats.

    Args:
        student: gradients flow through its probabilities.
        teacher: no gradients.
        sequence: int64 [rows, tokens], prompts and the student's samples.
    """
    positions = slice(PROMPT_TOKENS - 1, -1)
    log_p = student(input_ids=sequence).logits[:, positions].log_softmax(-1)
    with torch.no_grad():
        teacher_log_p = teacher(input_ids=sequence).logits[:, positions].log_softmax(-1)
    divergence: Tensor = (log_p.exp() * (log_p - teacher_log_p)).sum(-1).mean()
    return divergence


@torch.no_grad()
def held_out_kl(student: Any, teacher: Any, plan: TrainingPlan) -> float:
    """Reverse KL on a fixed set of held-out prompts."""
    generator = torch.Generator().manual_seed(plan.seed + 90)
    start = prompts(questions(512, generator, held_out=True))
    return float(reverse_kl(student, teacher, sample(student, start, plan.tokens, generator)))


def distil(student: Any, teacher: Any, plan: TrainingPlan) -> int:
    """On-policy distillation of the student, in place.

    Returns:
        Number of steps taken.
    """
    generator = torch.Generator().manual_seed(plan.seed + 3)
    optimizer = torch.optim.AdamW(student.parameters(), lr=plan.learning_rate, betas=(0.9, 0.98), weight_decay=0.0)
    start_time = time.monotonic()
    for step in range(plan.steps):
        if plan.seconds and time.monotonic() - start_time > plan.seconds:
            return step
        start = prompts(questions(plan.batch, generator, held_out=False))
        loss = reverse_kl(student, teacher, sample(student, start, plan.tokens, generator))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            say(f"  step {step:4d}: reverse KL {loss.item():.4f} nats a token")
    return plan.steps


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the progress bars of transformers."""
    from transformers.utils import logging

    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()


def train(out: Path, plan: TrainingPlan) -> Distilled:
    """Write ``out/source``, ``out/teacher`` and ``out/target``, bf16 checkpoints in the Hugging Face layout.

    The prompts are in ``out/prompts.jsonl``.
    """
    write_prompts(out / "prompts.jsonl")
    with quiet():
        model = make_model(plan.shape, plan.seed)
        say(f"training a source of {sum(p.numel() for p in model.parameters()):,} parameters on sums ...")
        learn_language(model, plan.source_steps, plan.seed + 1)
        save_model(model, out / "source")
        say("training it further into a teacher ...")
        learn_language(model, plan.teacher_steps, plan.seed + 2)
        save_model(model, out / "teacher")

        teacher, student = load_model(out / "teacher"), load_model(out / "source")
        held_out = questions(500, torch.Generator().manual_seed(plan.seed + 91), held_out=True)
        before = held_out_kl(student, teacher, plan), accuracy(student, held_out)
        say(f"distilling: AdamW, learning rate {plan.learning_rate:g}, {plan.steps} steps ...")
        start_time = time.monotonic()
        steps = distil(student, teacher, plan)
        seconds = time.monotonic() - start_time
        save_model(student, out / "target")
        return Distilled(
            steps=steps,
            seconds=seconds,
            kl_before=before[0],
            kl_after=held_out_kl(student, teacher, plan),
            accuracy_source=before[1],
            accuracy_target=accuracy(student, held_out),
            accuracy_teacher=accuracy(teacher, held_out),
        )
