"""Completions that a model samples itself, from random numbers that depend on the prompt alone and not on its batch.

Two models that sample for the same seed, step and prompts are given the same random numbers, so that what they do
differently comes from their weights: comparisons of training runs are paired.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from maskreg.errors import UsageError


@dataclass(frozen=True, eq=False)
class Rollout:
    """Prompts with their completions; prompts end, and completions start, at the same column.

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
        """Which tokens of completions are some, end tokens included: bool ``[rows, width - start]``."""
        return self.present[:, self.start :]

    def lists(self) -> list[list[int]]:
        """Each completion without padding."""
        rows: list[list[int]] = [row[on].tolist() for row, on in zip(self.completions, self.counted, strict=True)]
        return rows


def given(prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], *, pad: int) -> Rollout:
    """Completions that are there already, such as answers.

    Args:
        prompts: token ids.
        completions: of each prompt.
        pad: stands where nothing is.

    Raises:
        UsageError: there are none, not one for each prompt, or one of a pair is empty.
    """
    if len(prompts) != len(completions) or not prompts or not all(prompts) or not all(completions):
        raise UsageError("each of one or more prompts needs a completion, and neither may be empty")
    start, longest = max(map(len, prompts)), max(map(len, completions))
    tokens = torch.full((len(prompts), start + longest), pad, dtype=torch.int64)
    present = torch.zeros(tokens.shape, dtype=torch.bool)
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        here = slice(start - len(prompt), start + len(completion))
        tokens[row, here] = torch.tensor([*prompt, *completion])
        present[row, here] = True
    return Rollout(tokens, present, start)


def logits_of(model: Any, rollout: Rollout) -> torch.Tensor:
    """What a model says of each token of completions: logits ``[rows, width - start, vocabulary]``.

    Args:
        model: a causal language model of transformers; gradients flow unless switched off.
        rollout: on the model's device.
    """
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


def sample(
    model: Any,
    prompts: Sequence[Sequence[int]],
    *,
    tokens: int,
    ends: Sequence[int],
    pad: int,
    seed: int,
    step: int = 0,
    draws: Sequence[int] | None = None,
    temperature: float = 1.0,
    rows: int = 256,
    any_of: Callable[[bool], bool] = bool,
) -> Rollout:
    """Complete prompts by tokens that the model samples, up to an end token.

    Prompts of similar length are worked on together, with their keys and values kept; the model is put into evaluation
    mode meanwhile. A row's random numbers are those of seed, step, its prompt and its draw. What a batch changes is
    rounding in the model, which rarely decides a token.

    Args:
        model: a causal language model of transformers, or anything that is called like one.
        prompts: token ids of each.
        tokens: how many to sample at most.
        ends: tokens that end a completion, and belong to it.
        pad: stands where nothing is.
        seed: of the run.
        step: of the run.
        draws: which completion of its prompt each row is; by default its number among the same prompts here.
        temperature: logits are divided by it; at 0 the likeliest token is taken.
        rows: how many are worked on at once, at most.
        any_of: whether something holds in any process. Where a model is sharded, all have to call it equally often, so
            that those whose rows have ended go on beside the others; they then have as many rows each.

    Returns:
        On the model's device, rows in the order of ``prompts``.

    Raises:
        UsageError: no prompt, an empty one, or nothing to sample.
    """
    if not prompts or not all(prompts) or tokens < 1 or temperature < 0:
        raise UsageError("sampling needs prompts, each of a token or more, tokens to sample and a temperature from 0")
    if draws is None:
        seen: Counter[tuple[int, ...]] = Counter()
        draws = []
        for prompt in prompts:
            draws.append(seen[tuple(prompt)])
            seen[tuple(prompt)] += 1
    chances = np.stack([uniform(seed, step, p, draw, tokens) for p, draw in zip(prompts, draws, strict=True)])
    device = next(model.parameters()).device
    order = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
    completions: list[list[int]] = [[] for _ in prompts]
    training = model.training
    model.eval()
    try:
        for first in range(0, len(order), rows):
            part = order[first : first + rows]
            begun = given([prompts[row] for row in part], [[pad]] * len(part), pad=pad)
            drawn = torch.from_numpy(chances[part]).to(device)
            found = _continue(model, begun, drawn, frozenset(ends), temperature, any_of)
            for row, completion in zip(part, found, strict=True):
                completions[row] = completion
    finally:
        model.train(training)
    whole = given(prompts, completions, pad=pad)
    return Rollout(whole.tokens.to(device), whole.present.to(device), whole.start)


def uniform(seed: int, step: int, prompt: Sequence[int], draw: int, count: int) -> npt.NDArray[np.float64]:
    """The random numbers of one completion, from 0 and below 1; float64 ``[count]``.

    Philox 4x64 (Salmon et al. 2011), keyed by the SHA-256 of all that they depend on.
    """
    text = f"{seed} {step} {draw} {' '.join(map(str, prompt))}"
    key = np.frombuffer(hashlib.sha256(text.encode()).digest()[:16], dtype="<u8")
    raw = np.random.Philox(key=key.astype(np.uint64)).random_raw(count)
    return np.asarray(raw >> np.uint64(11), dtype=np.float64) * 2.0**-53


@torch.no_grad()
def _continue(
    model: Any,
    begun: Rollout,
    chances: torch.Tensor,
    ends: frozenset[int],
    temperature: float,
    any_of: Callable[[bool], bool],
) -> list[list[int]]:
    """Completions of some rows, as lists."""
    device = chances.device
    present = begun.present[:, : begun.start].to(device)
    step, positions, cache = begun.tokens[:, : begun.start].to(device), _positions(present), None
    said: list[list[int]] = [[] for _ in range(len(present))]
    going = set(range(len(present)))
    for column in range(chances.shape[1]):
        out = model(
            input_ids=step,
            attention_mask=present.long(),
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache = out.past_key_values
        chosen = _choose(out.logits[:, -1], chances[:, column], temperature)
        for row, token in enumerate(chosen.tolist()):
            if row in going:
                said[row].append(token)
                if token in ends:
                    going.discard(row)
        if not any_of(bool(going)):
            break
        step, positions = chosen[:, None], positions[:, -1:] + 1
        present = torch.cat([present, present.new_ones(len(present), 1)], dim=1)
    return said


def _choose(logits: torch.Tensor, chances: torch.Tensor, temperature: float) -> torch.Tensor:
    """The token of each row at which the cumulative probability passes its random number."""
    if temperature == 0:
        return logits.argmax(-1)
    cumulative = (logits.double() / temperature).softmax(-1).cumsum(-1)
    wanted = chances[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, wanted, right=True).squeeze(1).clamp_(max=logits.shape[-1] - 1)


def _positions(present: torch.Tensor) -> torch.Tensor:
    return (present.long().cumsum(-1) - 1).clamp_(min=0)
