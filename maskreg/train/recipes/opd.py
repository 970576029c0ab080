"""``opd``, on-policy distillation: the student samples, and the teacher scores every token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from maskreg.errors import UsageError
from maskreg.train.recipes.base import Batch, Context
from maskreg.train.recipes.losses import reverse_kl, sampled_reverse_kl
from maskreg.train.recipes.records import Record
from maskreg.train.recipes.rollout import Randomness, Rollout, Sampling, logits_of, sample
from maskreg.train.recipes.setup import RunSetup
from maskreg.train.recipes.texts import ends_of, pad_of, prompt_of, too_long


class Opd:
    """KL(student || teacher) on completions that the student samples in the same step, a mean over their tokens.

    A record is ``{"prompt"}``, or ``{"messages"}`` up to the assistant's turn; other fields are ignored. The loss is
    over the whole vocabulary (``full``), or a policy gradient on the sampled tokens (``sampled``).
    """

    needs_teacher = True
    losses: Sequence[str] = ("full", "sampled")

    def check(self, record: Record, setup: RunSetup, tokenizer: Any) -> bool:
        """See :class:`maskreg.train.recipes.base.Recipe`."""
        prompt = prompt_of(record, tokenizer)
        limit = setup.max_length - setup.max_new_tokens
        if len(prompt) > limit:
            raise too_long(record, len(prompt), limit, "--max-length minus --max-new-tokens")
        return True

    def prepare(self, model: torch.nn.Module, records: Sequence[Record], context: Context) -> Batch:
        """See :class:`maskreg.train.recipes.base.Recipe`."""
        setup, tokenizer = context.setup, context.tokenizer
        rows = sample(
            model,
            [prompt_of(record, tokenizer) for record in records],
            Sampling(setup.max_new_tokens, ends_of(model, tokenizer), pad_of(tokenizer), setup.temperature),
            Randomness(setup.seed, context.step, context.rows),
            any_of=context.any_of,
        )
        return Batch(float(rows.counted.sum()), int(rows.present.sum()), rows)

    def loss(self, model: torch.nn.Module, batch: Batch, context: Context, total: float) -> torch.Tensor:
        """See :class:`maskreg.train.recipes.base.Recipe`."""
        rows: Rollout = batch.content
        if context.teacher is None:
            raise UsageError("on-policy distillation needs a teacher", hint="add --teacher CKPT")
        with torch.no_grad():
            teacher = logits_of(context.teacher, rows)
        student = logits_of(model, rows)
        if context.setup.loss == "sampled":
            return sampled_reverse_kl(student, teacher, rows.completions, rows.counted, total=total)
        return reverse_kl(student, teacher, rows.counted, total=total)
