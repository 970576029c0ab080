"""``sft``, supervised fine-tuning: predict completions of prompts, answers of dialogues, or texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from maskreg.train.recipes.base import Batch, Context
from maskreg.train.recipes.losses import cross_entropy
from maskreg.train.recipes.records import Record
from maskreg.train.recipes.rollout import Rollout, given, logits_of
from maskreg.train.recipes.setup import RunSetup
from maskreg.train.recipes.texts import example_of, pad_of, too_long


class Sft:
    """Cross-entropy of completions, a mean over their tokens.

    A record is ``{"prompt", "completion"}``, ``{"messages"}`` with the answer last, or ``{"text"}``. Completions are
    truncated to ``max_length``; a prompt that leaves no room for one is rejected.
    """

    needs_teacher = False
    losses: Sequence[str] = ()

    def check(self, record: Record, setup: RunSetup, tokenizer: Any) -> bool:
        """See :class:`maskreg.train.recipes.base.Recipe`."""
        prompt, completion = example_of(record, tokenizer)
        if len(prompt) >= setup.max_length:
            raise too_long(record, len(prompt), setup.max_length - 1, "--max-length minus one to train on")
        return len(prompt) + len(completion) <= setup.max_length

    def prepare(self, model: torch.nn.Module, records: Sequence[Record], context: Context) -> Batch:
        """See :class:`maskreg.train.recipes.base.Recipe`."""
        examples = [example_of(record, context.tokenizer) for record in records]
        room = [context.setup.max_length - len(example.prompt) for example in examples]
        rows = given(
            [example.prompt for example in examples],
            [example.completion[:limit] for example, limit in zip(examples, room, strict=True)],
            pad=pad_of(context.tokenizer),
        )
        rows = Rollout(rows.tokens.to(context.device), rows.present.to(context.device), rows.start)
        return Batch(float(rows.counted.sum()), int(rows.present.sum()), rows)

    def loss(self, model: torch.nn.Module, batch: Batch, context: Context, total: float) -> torch.Tensor:
        """See :class:`maskreg.train.recipes.base.Recipe`."""
        rows: Rollout = batch.content
        return cross_entropy(logits_of(model, rows), rows.completions, rows.counted, total=total)
