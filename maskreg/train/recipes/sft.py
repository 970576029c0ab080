"""``sft``: predict the completions of prompts, the answers of dialogues, or texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from maskreg.train.recipes.base import Batch, Context
from maskreg.train.recipes.losses import cross_entropy
from maskreg.train.recipes.records import Record
from maskreg.train.recipes.rollout import Rollout, given, logits_of
from maskreg.train.recipes.setup import Setup
from maskreg.train.recipes.texts import example_of, pad_of, too_long


class Sft:
    """Cross-entropy of what follows a prompt, a mean over its tokens.

    A record is ``{"prompt", "completion"}``, ``{"messages"}`` with the answer last, or ``{"text"}``. What exceeds
    ``max_length`` is cut off; a prompt that leaves no room is refused.
    """

    needs_teacher = False
    losses: Sequence[str] = ()

    def check(self, record: Record, setup: Setup, tokenizer: Any) -> bool:
        """See :class:`maskreg.train.recipes.base.Recipe`."""
        prompt, completion = example_of(record, tokenizer)
        if len(prompt) >= setup.max_length:
            raise too_long(record, len(prompt), setup.max_length - 1, "--max-length, less one to train on")
        return len(prompt) + len(completion) <= setup.max_length

    def prepare(self, model: torch.nn.Module, records: Sequence[Record], context: Context) -> Batch:
        """See :class:`maskreg.train.recipes.base.Recipe`."""
        examples = [example_of(one, context.tokenizer) for one in records]
        room = [context.setup.max_length - len(one.prompt) for one in examples]
        rows = given(
            [one.prompt for one in examples],
            [one.completion[:most] for one, most in zip(examples, room, strict=True)],
            pad=pad_of(context.tokenizer),
        )
        rows = Rollout(rows.tokens.to(context.device), rows.present.to(context.device), rows.start)
        return Batch(float(rows.counted.sum()), int(rows.present.sum()), rows)

    def loss(self, model: torch.nn.Module, batch: Batch, context: Context, total: float) -> torch.Tensor:
        """See :class:`maskreg.train.recipes.base.Recipe`."""
        rows: Rollout = batch.content
        return cross_entropy(logits_of(model, rows), rows.completions, rows.counted, total=total)
