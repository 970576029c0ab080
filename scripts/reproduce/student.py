"""The student: bf16 parameters, and an fp32 copy of the model that computes with their values.

Weights and the gradients that reach the optimizer have bf16 values, as in bf16 training. Matrices are multiplied in
fp32, which is 10 to 40 times as fast as bf16 on most CPUs. Activations are fp32.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scripts.reproduce.losses import kl, log_probabilities
from scripts.reproduce.rollout import Randomness, Rollout, Sampling, given, logits_of, sample
from scripts.reproduce.setting import Problem, problems

PAD = 0


class Student:
    """A model in training.

    Attributes:
        weights: the model in bf16; its parameters are what an optimizer trains.
        compute: the model in fp32 with the same values, after :meth:`refresh`.
    """

    def __init__(self, source: Path) -> None:
        self.weights = load(source, torch.bfloat16)
        self.compute = load(source, torch.float32)
        self.start = {name: p.detach().clone() for name, p in self.weights.named_parameters()}

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the bf16 parameters into the fp32 model."""
        for wide, narrow in zip(self.compute.parameters(), self.weights.parameters(), strict=True):
            wide.copy_(narrow)

    @torch.no_grad()
    def hand_back(self) -> None:
        """Move gradients to the bf16 parameters, rounded to bf16 as in a bf16 model."""
        for wide, narrow in zip(self.compute.parameters(), self.weights.parameters(), strict=True):
            narrow.grad = None if wide.grad is None else wide.grad.to(narrow.dtype)
            wide.grad = None


class Lesson(NamedTuple):
    """Problems as token ids; answers end in the end token."""

    prompts: list[list[int]]
    answers: list[list[int]]
    end: int


def load(path: Path, dtype: torch.dtype) -> Any:
    """A checkpoint as a model."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    return AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()


def tokenizer(path: Path) -> Any:
    """A checkpoint's tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path)


@cache
def lessons(path: Path) -> tuple[Lesson, Lesson]:
    """Training problems and held-out problems, tokenized for a checkpoint."""
    encode = tokenizer(path)
    return tuple(_lesson(encode, part) for part in problems())  # type: ignore[return-value]


def _lesson(encode: Any, part: list[Problem]) -> Lesson:
    end = int(encode.eos_token_id)
    prompts = [encode(problem.prompt, add_special_tokens=False).input_ids for problem in part]
    answers = [[*encode(problem.answer, add_special_tokens=False).input_ids, end] for problem in part]
    return Lesson(prompts, answers, end)


@torch.no_grad()
def measure(model: Any, teacher: Any, lesson: Lesson, *, tokens: int, seed: int | None) -> dict[str, float]:
    """Measure a model on problems."""
    answers = given(lesson.prompts, lesson.answers, pad=PAD)
    logits, teacher_logits = logits_of(model, answers), logits_of(teacher, answers)
    log_p = log_probabilities(logits, answers.completions, answers.counted).sum(1)
    right = (logits.argmax(-1) == answers.completions) | ~answers.counted
    result = {
        "kl": kl(logits, teacher_logits, answers.counted).item(),
        "forward_kl": kl(teacher_logits, logits, answers.counted).item(),
        "p": log_p.exp().mean().item(),
        "accuracy": right.all(1).float().mean().item(),
    }
    if seed is not None:
        rollout = sample(model, lesson.prompts, Sampling(tokens, lesson.end, PAD), Randomness(seed))
        result["kl_samples"] = reverse_kl_of(model, teacher, rollout).item()
    return result


def reverse_kl_of(model: Any, teacher: Any, rollout: Rollout) -> Tensor:
    """Reverse KL on completions; gradients flow into the model only."""
    with torch.no_grad():
        teacher_logits = logits_of(teacher, rollout)
    return kl(logits_of(model, rollout), teacher_logits, rollout.counted)
