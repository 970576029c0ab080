"""The task: sums and differences of small numbers, which ones are trained on, and how a model answers the others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

LIMIT = 20
"""Numbers in problems are smaller."""

TRAINED_SHARE = 0.6
"""Share of problems to train on; the others are held out."""


class Problem(NamedTuple):
    """A prompt and its only right answer."""

    prompt: str
    answer: str


@cache
def problems() -> tuple[list[Problem], list[Problem]]:
    """All sums and all non-negative differences of numbers below ``LIMIT``: training problems and held-out ones.

    A sum and its commuted twin are on one side of the split, as ``# 3+5=`` and ``# 5+3=``: a model that has learned one
    knows the other. These pairs, and differences, are split in the order of the SHA-256 of their first prompt, so the
    split depends on nothing else.
    """
    numbers = range(LIMIT)
    groups = [
        [Problem(f"# {x}+{y}=", str(a + b)) for x, y in dict.fromkeys([(a, b), (b, a)])]
        for a in numbers
        for b in numbers
        if a <= b
    ]
    groups += [[Problem(f"# {a}-{b}=", str(a - b))] for a in numbers for b in numbers if a >= b]
    groups.sort(key=lambda group: hashlib.sha256(group[0].prompt.encode()).digest())
    count = round(TRAINED_SHARE * sum(map(len, groups)))
    training: list[Problem] = []
    held_out: list[Problem] = []
    for group in groups:
        (training if len(training) < count else held_out).extend(group)
    return training, held_out


def write_records(path: Path) -> None:
    """Write the training problems, as TRL reads them: ``prompts.jsonl``, and with answers ``answers.jsonl``."""
    for name, keys in (("prompts", ("prompt",)), ("answers", ("prompt", "completion"))):
        lines = [json.dumps(dict(zip(keys, problem, strict=False))) for problem in problems()[0]]
        (path / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def right(prompts: Sequence[str], completions: Sequence[str], **_: object) -> list[float]:
    """The reward: 1 for the right answer."""
    known = {problem.prompt: problem.answer for problem in problems()[0]}
    return [float(said.strip() == known[prompt]) for prompt, said in zip(prompts, completions, strict=True)]


@torch.no_grad()
def measure(path: Path, teacher: Path) -> dict[str, float]:
    """Measure a checkpoint on held-out problems, without sampling.

    ``kl`` is KL(model || teacher) over the vocabulary, mean over the tokens of right answers; ``nll`` minus the
    log-probability of a right answer and its end, and ``p`` that probability, means over problems; ``accuracy`` the
    share that is answered right greedily.
    """
    tokens, answers = _held_out(teacher)
    rows, targets = answers.nonzero()[:, 0], tokens[:, 1:][answers]
    log_p, log_q = (load(side)(tokens).logits[:, :-1][answers].log_softmax(-1) for side in (path, teacher))
    of_answers = torch.zeros(len(tokens)).index_add(0, rows, log_p.gather(1, targets[:, None])[:, 0])
    wrong = torch.zeros(len(tokens)).index_add(0, rows, (log_p.argmax(-1) != targets).float())
    return {
        "kl": (log_p.exp() * (log_p - log_q)).sum(-1).mean().item(),
        "nll": -of_answers.mean().item(),
        "p": of_answers.exp().mean().item(),
        "accuracy": (wrong == 0).float().mean().item(),
    }


def load(path: Path) -> Any:
    """A checkpoint as a model in fp32."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


@cache
def _held_out(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Problems with answers, int64 ``[rows, width]``, and which next tokens answer, bool ``[rows, width - 1]``."""
    from transformers import AutoTokenizer

    encode = AutoTokenizer.from_pretrained(path)
    sides = [[encode(text, add_special_tokens=False).input_ids for text in problem] for problem in problems()[1]]
    width = max(len(prompt) + len(answer) for prompt, answer in sides) + 1
    # Padding on the right: no token attends to it.
    tokens = torch.zeros(len(sides), width, dtype=torch.int64)
    answers = torch.zeros(len(sides), width - 1, dtype=torch.bool)
    for row, (prompt, answer) in enumerate(sides):
        text = [*prompt, *answer, encode.eos_token_id]
        tokens[row, : len(text)] = torch.tensor(text)
        answers[row, len(prompt) - 1 : len(text) - 1] = True
    return tokens, answers
