"""What a recipe is: what a step trains on, and the loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from maskreg.train.recipes.records import Record
from maskreg.train.recipes.setup import Setup


@dataclass(frozen=True, eq=False)
class Context:
    """What a recipe may use beside the model and the data.

    Attributes:
        setup: of the run.
        tokenizer: the source's.
        device: where the model is.
        teacher: another model in evaluation mode, for recipes that need one.
        step: from 0.
        rows: of each record, its place among all records of the step.
        seed: for whatever chance decides now; other steps, processes and micro-batches have others.
        any_of: whether something holds in any process; all have to ask equally often, as they have to call the model.
    """

    setup: Setup
    tokenizer: Any
    device: torch.device
    teacher: torch.nn.Module | None
    step: int
    rows: Sequence[int]
    seed: int
    any_of: Callable[[bool], bool] = bool


@dataclass(frozen=True, eq=False)
class Batch:
    """What goes through the model at once.

    Attributes:
        weight: how many terms its loss sums, such as tokens that are predicted.
        tokens: that the model reads, for the report.
        content: whatever the recipe's loss wants.
    """

    weight: float
    tokens: int
    content: Any


class Recipe(Protocol):
    """One way to train. Recipes have no state: what they need comes with each call."""

    needs_teacher: bool
    """Whether there must be a teacher."""

    losses: Sequence[str]
    """Words that ``--loss`` takes, the default first; none when there is nothing to choose."""

    def check(self, record: Record, setup: Setup, tokenizer: Any) -> bool:
        """Refuse a record that could not be trained on, before training begins.

        Returns:
            Whether all of it will be; else it is cut at ``max_length``.

        Raises:
            DataError: what is wrong with it, and in which line.
        """

    def prepare(self, model: torch.nn.Module, records: Sequence[Record], context: Context) -> Batch:
        """Make a batch of some records, before any gradient of the step is there; here students sample."""

    def loss(self, model: torch.nn.Module, batch: Batch, context: Context, total: float) -> torch.Tensor:
        """What a batch contributes to the loss of its step: the sum of its terms over ``total``; fp32, 0-D.

        Args:
            model: gradients flow into it.
            batch: made by :meth:`prepare`.
            context: that of :meth:`prepare`.
            total: weights of all batches of the step together, so that contributions add up to a mean.
        """
