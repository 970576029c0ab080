"""Completions that a model samples, from random numbers that do not depend on the batch.

Each completion has its own stream of random numbers, keyed by seed, step, prompt and draw; token ``t`` is where the
cumulative probability passes number ``t`` (inverse transform sampling)::

    u = uniform(seed, step, prompt, draw, tokens)
    for t in range(tokens):
        p = softmax(logits(prompt + completion))
        append the first token whose cumulative p exceeds u[t]; stop at an end token

    p = 0.1 0.6 0.3, cumulative 0.1 0.7 1.0        u = 0.05 -> token 0, u = 0.64 -> token 1, u = 0.71 -> token 2

So two models given the same seed, step and prompts use the same random numbers for any size and order of their
batches: if they differ in a token, their weights do, and comparisons of training runs are paired.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch


@dataclass(frozen=True, eq=False)
class Rollout:
    """Prompts with completions, which start at the same column in all rows.

    Attributes:
        tokens: int64 ``[rows, width]``; prompts are padded on the left, completions on the right.
        present: bool ``[rows, width]``, False at padding.
        start: column of the first token of completions.
    """

    tokens: torch.Tensor
    present: torch.Tensor
    start: int

    @property
    def completions(self) -> torch.Tensor:
        """int64 ``[rows, width - start]``."""
        return self.tokens[:, self.start :]

    @property
    def counted(self) -> torch.Tensor:
        """Which entries of :attr:`completions` are tokens, not padding: bool ``[rows, width - start]``."""
        return self.present[:, self.start :]

    def lists(self) -> list[list[int]]:
        """Each completion without padding."""
        rows: list[list[int]] = [row[on].tolist() for row, on in zip(self.completions, self.counted, strict=True)]
        return rows


def given(prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], *, pad: int) -> Rollout:
    """A rollout of given completions, such as answers."""
    start, longest = max(map(len, prompts)), max(map(len, completions))
    tokens = torch.full((len(prompts), start + longest), pad, dtype=torch.int64)
    present = torch.zeros(tokens.shape, dtype=torch.bool)
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        columns = slice(start - len(prompt), start + len(completion))
        tokens[row, columns] = torch.tensor([*prompt, *completion])
        present[row, columns] = True
    return Rollout(tokens, present, start)


def logits_of(model: Any, rollout: Rollout) -> torch.Tensor:
    """Logits that predict each token of completions: ``[rows, width - start, vocabulary]``."""
    kept = rollout.tokens.shape[1] - rollout.start + 1
    out = model(
        input_ids=rollout.tokens,
        attention_mask=rollout.present.long(),
        position_ids=_positions(rollout.present),
        use_cache=False,
        logits_to_keep=kept,
    )
    logits: torch.Tensor = out.logits[:, -kept:-1]
    return logits


@dataclass(frozen=True)
class Sampling:
    """How completions are sampled.

    Attributes:
        tokens: the most tokens to sample.
        end: the token that ends a completion, and belongs to it.
        pad: fills rows up.
    """

    tokens: int
    end: int
    pad: int


@dataclass(frozen=True)
class Randomness:
    """What, beside the prompt, the random numbers of completions depend on.

    Attributes:
        seed: of the run.
        step: of the run.
    """

    seed: int
    step: int = 0

    def uniform(self, prompts: Sequence[Sequence[int]], count: int) -> npt.NDArray[np.float64]:
        """The random numbers of each completion, others where a prompt is repeated; float64 ``[rows, count]``."""
        seen: Counter[tuple[int, ...]] = Counter()
        rows = []
        for prompt in prompts:
            rows.append(uniform(self.seed, self.step, prompt, seen[tuple(prompt)], count))
            seen[tuple(prompt)] += 1
        return np.stack(rows)


@torch.no_grad()
def sample(model: Any, prompts: Sequence[Sequence[int]], sampling: Sampling, randomness: Randomness) -> Rollout:
    """Complete prompts by tokens that the model samples, up to an end token.

    The model reads the whole text for each token, which costs less than a cache as long as completions have a few
    tokens. Of the other rows, a completion depends only on rounding in the model, which rarely decides a token.
    """
    chances = torch.from_numpy(randomness.uniform(prompts, sampling.tokens))
    completions: list[list[int]] = [[] for _ in prompts]
    training = model.training
    model.eval()
    for number in range(sampling.tokens):
        # Each completion has as many tokens; after its end they are drawn too, and dropped below.
        text = given(prompts, [[*completion, sampling.pad] for completion in completions], pad=sampling.pad)
        chosen = _choose(logits_of(model, text)[:, -1], chances[:, number])
        for completion, token in zip(completions, chosen.tolist(), strict=True):
            completion.append(token)
    model.train(training)
    for completion in completions:
        if sampling.end in completion:
            del completion[completion.index(sampling.end) + 1 :]
    return given(prompts, completions, pad=sampling.pad)


def uniform(seed: int, step: int, prompt: Sequence[int], draw: int, count: int) -> npt.NDArray[np.float64]:
    """The random numbers of one completion, in [0, 1); float64 ``[count]``.

    Philox 4x64 (Salmon et al. 2011), keyed by the SHA-256 of everything that they depend on; 53 bits of each.
    """
    text = f"{seed} {step} {draw} {' '.join(map(str, prompt))}"
    key = np.frombuffer(hashlib.sha256(text.encode()).digest()[:16], dtype="<u8")
    raw = np.random.Philox(key=key.astype(np.uint64)).random_raw(count)
    return np.asarray(raw >> np.uint64(11), dtype=np.float64) * 2.0**-53


def _choose(logits: torch.Tensor, chances: torch.Tensor) -> torch.Tensor:
    """The first token of each row whose cumulative probability exceeds the row's random number; int64 ``[rows]``."""
    cumulative = (logits.double()).softmax(-1).cumsum(-1)
    # The last cumulative probability can round to less than 1.
    thresholds = chances[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, thresholds, right=True).squeeze(1).clamp_(max=logits.shape[-1] - 1)


def _positions(present: torch.Tensor) -> torch.Tensor:
    return (present.long().cumsum(-1) - 1).clamp_(min=0)
