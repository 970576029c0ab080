"""Choosing which coordinates belong to a baseline: what must be known of tensors before their blocks can be made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.flow.baseline.drawing import DrawnChooser
from maskreg.flow.baseline.ranking import RankedChooser
from maskreg.flow.baseline.sweeping import Choices, Sweeper
from maskreg.mask.baseline import BaselineSpec, complement


class Chooser(Protocol):
    """Makes the choices of one baseline, batch after batch of tensors."""

    sweeps: int
    """How often every tensor is swept, storing included."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the choices made so far, one sentence each."""

    def begin(self, rows: Iterable[Tensor]) -> None:
        """Choose what depends on all tensors together.

        Raises:
            UsageError: there is no such baseline of this mask.
        """

    def choose(self, rows: Sequence[Tensor]) -> Choices:
        """The choices for some tensors, by name; each of them has coordinates."""

    def end(self) -> None:
        """Check the choices, now that all tensors are done.

        Raises:
            UsageError: there is no such baseline of this mask.
        """


class ComplementChooser:
    """Chooses every coordinate that the mask lacks."""

    sweeps = 1
    notes: tuple[str, ...] = ()

    def begin(self, rows: Iterable[Tensor]) -> None:
        """Do nothing: tensors are independent."""

    def choose(self, rows: Sequence[Tensor]) -> Choices:
        """The complement of each mask."""
        return {row.name: complement for row in rows}

    def end(self) -> None:
        """Do nothing: every mask has a complement."""


def chooser_for(artifact: Artifact, spec: BaselineSpec, sweeper: Sweeper) -> Chooser:
    """The chooser of a kind of baseline.

    Raises:
        UsageError: there is no such baseline of this mask.
    """
    if spec.kind.name == "complement":
        return ComplementChooser()
    if spec.kind.name in ("low-magnitude", "principal", "safe"):
        return RankedChooser(artifact, spec, sweeper)
    return DrawnChooser(artifact, spec, sweeper)
