"""The student: bf16 parameters, which are the truth, and an fp32 copy of the model that computes with their values.

This keeps what matters of training in bf16 (weights, and the gradients that reach the optimizer, have bf16 values) at
the speed of fp32 matrices, which on most CPUs is 10 to 40 times that of bf16 ones. Activations are fp32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskreg.train.recipes.losses import forward_kl, log_probabilities, reverse_kl
from maskreg.train.recipes.rollout import Rollout, given, logits_of, sample
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
        """Copy the parameters up."""
        for wide, narrow in zip(self.compute.parameters(), self.weights.parameters(), strict=True):
            wide.copy_(narrow)

    @torch.no_grad()
    def hand_back(self) -> None:
        """Move gradients to the parameters, rounded to bf16 as those of a bf16 model are."""
        for wide, narrow in zip(self.compute.parameters(), self.weights.parameters(), strict=True):
            narrow.grad = None if wide.grad is None else wide.grad.to(narrow.dtype)
            wide.grad = None


@dataclass(frozen=True)
class Lesson:
    """Problems as tokens.

    Attributes:
        prompts: token ids.
        answers: token ids, the end token last.
        end: the end token.
    """

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
    """Problems to train on, and held-out ones, in the words of a checkpoint."""
    words = tokenizer(path)
    return tuple(_lesson(words, part) for part in problems())  # type: ignore[return-value]


def _lesson(words: Any, part: list[Problem]) -> Lesson:
    end = int(words.eos_token_id)
    prompts = [words(problem.prompt, add_special_tokens=False).input_ids for problem in part]
    answers = [[*words(problem.answer, add_special_tokens=False).input_ids, end] for problem in part]
    return Lesson(prompts, answers, end)


@torch.no_grad()
def measure(model: Any, teacher: Any, lesson: Lesson, *, tokens: int, seed: int | None) -> dict[str, float]:
    """What a model has learnt.

    Args:
        model: in fp32.
        teacher: likewise.
        lesson: the problems.
        tokens: that the model samples after each prompt at most.
        seed: of those samples; None does without them.

    Returns:
        ``kl``: KL(model || teacher) over the vocabulary, mean over the tokens of right answers, each after those before
        it; ``forward_kl``: the other direction; ``p``: mean probability of the right answer and its end; ``accuracy``:
        share of problems whose greedy completion is the right answer; ``kl_samples``: KL(model || teacher) on
        completions that the model samples itself.
    """
    answers = given(lesson.prompts, lesson.answers, pad=PAD)
    ours, theirs = logits_of(model, answers), logits_of(teacher, answers)
    chances = torch.where(answers.counted, log_probabilities(ours, answers.completions), 0.0).sum(1)
    hit = (ours.argmax(-1) == answers.completions) | ~answers.counted
    found = {
        "kl": reverse_kl(ours, theirs, answers.counted).item(),
        "forward_kl": forward_kl(ours, theirs, answers.counted).item(),
        "p": chances.exp().mean().item(),
        "accuracy": hit.all(1).float().mean().item(),
    }
    if seed is not None:
        own = sample(model, lesson.prompts, tokens=tokens, ends=[lesson.end], pad=PAD, seed=seed)
        found["kl_samples"] = distance(model, teacher, own).item()
    return found


def distance(model: Any, teacher: Any, own: Rollout) -> Tensor:
    """Reverse KL on completions, gradients flowing into the model."""
    with torch.no_grad():
        theirs = logits_of(teacher, own)
    return reverse_kl(logits_of(model, own), theirs, own.counted)
