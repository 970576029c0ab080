"""Trains the demo's checkpoints: a source, a teacher, and the targets of two real on-policy distillations.

The student samples its own continuations; the teacher scores the same tokens; the loss is the reverse KL over the
whole vocabulary, averaged over the sampled tokens. AdamW works on fp32 master weights; the files hold their bf16 casts.

  python -m scripts.journey.train DIR
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
from scripts.journey.pair import PARTS, seal
from scripts.journey.progress import Steps, say


@dataclass(frozen=True)
class TrainingPlan:
    """Everything that determines the result.

    Attributes:
        source_steps: of language modeling, from random weights to the source.
        teacher_steps: of language modeling, from the source to the teacher.
        steps: of each distillation.
        batch: sequences in a step.
        tokens: that the student samples after each prompt.
        learning_rate: of the distillation; that of language modeling is fixed.
        seed: of weights, text and sampling; the second distillation differs in the prompts and samples it draws.
        shape: of the model.
    """

    source_steps: int = 250
    teacher_steps: int = 350
    steps: int = 120
    batch: int = 64
    tokens: int = 24
    learning_rate: float = 1e-6
    seed: int = 0
    shape: Shape = field(default_factory=Shape)


@dataclass(frozen=True)
class Distilled:
    """Results of a distillation, measured on held-out questions.

    KL is the reverse KL in nats per token, on continuations that the measured model samples itself.
    """

    name: str
    steps: int
    seconds: float
    kl_before: float
    kl_after: float
    accuracy_source: float
    accuracy_target: float
    accuracy_teacher: float


def learn_language(model: Any, steps: int, seed: int, name: str) -> None:
    """Ordinary next-token training on correct sums, in place; progress goes under ``name``."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=max(steps, 1))
    progress = Steps(name, steps)
    for step in range(steps):
        text = windows(32, 36, generator)
        logits = model(input_ids=text[:, :-1]).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        progress.done(step + 1, f"loss {loss.item():.4f}")


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


def distil(student: Any, teacher: Any, plan: TrainingPlan, seed: int, name: str) -> None:
    """On-policy distillation of the student, in place; ``seed`` draws prompts and samples."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(student.parameters(), lr=plan.learning_rate, betas=(0.9, 0.98), weight_decay=0.0)
    progress = Steps(name, plan.steps)
    for step in range(plan.steps):
        start = prompts(questions(plan.batch, generator, held_out=False))
        loss = reverse_kl(student, teacher, sample(student, start, plan.tokens, generator))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        progress.done(step + 1, f"reverse KL {loss.item():.4f} nats a token")


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


def train(out: Path, plan: TrainingPlan) -> list[Distilled]:
    """Write ``source``, ``teacher``, ``target`` and ``target-seed1`` into ``out``, and ``prompts.jsonl``.

    They are bf16 checkpoints in the Hugging Face layout. The two targets are distilled from the same source and
    teacher; the second draws other prompts and samples.
    """
    # With one thread, sums have one order whatever the machine; and a model this small is no slower.
    torch.set_num_threads(1)
    write_prompts(out / "prompts.jsonl")
    with quiet():
        model = make_model(plan.shape, plan.seed)
        say(f"a model of {sum(p.numel() for p in model.parameters()):,} parameters learns sums: the source")
        learn_language(model, plan.source_steps, plan.seed + 1, "source")
        save_model(model, out / "source")
        say("it learns on: the teacher")
        learn_language(model, plan.teacher_steps, plan.seed + 2, "teacher")
        save_model(model, out / "teacher")
        runs = [_distil_from_files(out, plan, "target", plan.seed + 3)]
        runs.append(_distil_from_files(out, plan, "target-seed1", plan.seed + 4))
        return runs


def _distil_from_files(out: Path, plan: TrainingPlan, name: str, seed: int) -> Distilled:
    """Distill ``out/teacher`` into ``out/source``; the result is ``out/<name>``."""
    teacher, student = load_model(out / "teacher"), load_model(out / "source")
    held_out = questions(500, torch.Generator().manual_seed(plan.seed + 91), held_out=True)
    before = held_out_kl(student, teacher, plan), accuracy(student, held_out)
    say(f"the source is distilled on-policy (AdamW, learning rate {plan.learning_rate:g}): {name}")
    start_time = time.monotonic()
    distil(student, teacher, plan, seed, name)
    seconds = time.monotonic() - start_time
    save_model(student, out / name)
    return Distilled(
        name=name,
        steps=plan.steps,
        seconds=seconds,
        kl_before=before[0],
        kl_after=held_out_kl(student, teacher, plan),
        accuracy_source=before[1],
        accuracy_target=accuracy(student, held_out),
        accuracy_teacher=accuracy(teacher, held_out),
    )


def main() -> int:
    """Train into a folder that holds no pair yet, and print what was learned.

    Returns:
        The exit code: 73 if the folder already holds something of that name.
    """
    parser = argparse.ArgumentParser(prog="scripts/demo --train DIR", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=TrainingPlan.steps)
    parser.add_argument("--training-steps", type=int)
    options = parser.parse_args()
    plan = replace(TrainingPlan(), steps=options.steps)
    if options.training_steps is not None:
        plan = replace(plan, source_steps=options.training_steps, teacher_steps=options.training_steps)
    folder: Path = options.folder
    if existing := [part for part in PARTS if (folder / part).exists()]:
        say(f"{folder} already holds {', '.join(existing)}; name another folder, or delete them")
        return 73
    folder.mkdir(parents=True, exist_ok=True)
    for run in train(folder, plan):
        say(
            f"{run.name}: {run.steps} steps in {run.seconds:.0f} s; on held-out sums\n"
            f"  reverse KL to the teacher {run.kl_before:.4f} -> {run.kl_after:.4f} nats a token\n"
            f"  exact answers {run.accuracy_source:.3f} -> {run.accuracy_target:.3f} "
            f"(teacher {run.accuracy_teacher:.3f})"
        )
    seal(folder)
    say(f"written to {folder}; next: scripts/demo --pair {shlex.quote(str(folder))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
