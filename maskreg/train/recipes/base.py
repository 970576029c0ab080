"""The contract of recipes: what a step trains on, and the loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from maskreg.train.recipes.records import Record
from maskreg.train.recipes.setup import RunSetup


@dataclass(frozen=True, eq=False)
class Context:
    """What a recipe gets beside the model and the data.

    Attributes:
        setup: of the run.
        tokenizer: of the source.
        device: of the model.
        teacher: another model in evaluation mode; None without one.
        step: number of the step, from 0.
        rows: index of each record among all records of the step.
        seed: for random choices; unique to step, process and micro-batch.
        any_of: whether a condition holds in any process; a collective call.
    """

    setup: RunSetup
    tokenizer: Any
    device: torch.device
    teacher: torch.nn.Module | None
    step: int
    rows: Sequence[int]
    seed: int
    any_of: Callable[[bool], bool] = bool


@dataclass(frozen=True, eq=False)
class Batch:
    """A prepared micro-batch.

    Attributes:
        weight: number of terms that its loss sums, such as predicted tokens.
        tokens: number of tokens that the model reads, for metrics.
        content: input of the recipe's loss.
    """

    weight: float
    tokens: int
    content: Any


class Recipe(Protocol):
    """A way to train. Recipes are stateless: all they need comes with each call."""

    needs_teacher: bool
    """Whether a teacher is required."""

    losses: Sequence[str]
    """Values of ``--loss``, the default first; empty if there is no choice."""

    def check(self, record: Record, setup: RunSetup, tokenizer: Any) -> bool:
        """Reject a record that cannot be trained on, before training begins.

        Returns:
            Whether all of it is trained on, not truncated at ``max_length``.
        """

    def prepare(self, model: torch.nn.Module, records: Sequence[Record], context: Context) -> Batch:
        """Make a batch of records before the first gradient of the step; on-policy recipes sample here."""

    def loss(self, model: torch.nn.Module, batch: Batch, context: Context, total: float) -> torch.Tensor:
        """What a batch contributes to the loss of its step: the sum of its terms over ``total``; fp32, 0-D.

        Args:
            model: receives gradients.
            batch: returned by :meth:`prepare`.
            context: the same as for :meth:`prepare`.
            total: weight of all batches of the step, so that contributions add up to a mean.
        """
