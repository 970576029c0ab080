"""A stored analysis and a trajectory, parsed and ready to be drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import msgspec

from maskreg.document import checked
from maskreg.errors import FormatError
from maskreg.reports.modules import in_order

TOP = "energy_top_"
STABLE = "stable_rank"


class Summary(msgspec.Struct, frozen=True):
    """A figure over matrices, each with its rounding null; None where no matrix has the figure.

    Attributes:
        weighted, null_weighted: mean weighted by moved coordinates; None for figures that are no coverage, too.
        chance: mean expectation for an update that knows nothing; None where it has no formula.
    """

    mean: float | None
    null_mean: float | None
    median: float | None
    null_median: float | None
    chance: float | None
    weighted: float | None = None
    null_weighted: float | None = None


class Beside(msgspec.Struct, frozen=True):
    """A pooled figure and the rounding null's; None where it is undefined."""

    value: float | None
    null: float | None


class Energy(msgspec.Struct, frozen=True):
    """Where an update's energy lies."""

    param_share: float | None
    share: Beside = msgspec.field(name="energy_share")
    lift: Beside = msgspec.field(name="energy_lift")


@dataclass(frozen=True)
class Geometry:
    """The geometry of an update.

    Attributes:
        layers: stable rank by layer, in the order of the model.
    """

    name: str
    figures: dict[str, Summary]
    layers: dict[str, Summary]
    energy: dict[str, Energy]
    concentration: dict[str, Beside]
    notes: tuple[str, ...]

    @property
    def energies(self) -> dict[int, Summary]:
        """Share of the energy in the ``k`` largest singular directions, by k."""
        tops = {name.removeprefix(TOP): figure for name, figure in self.figures.items() if name.startswith(TOP)}
        return {int(k): tops[k] for k in sorted(filter(str.isdigit, tops), key=int) if tops[k].median is not None}


class Point(msgspec.Struct, frozen=True):
    """One checkpoint of a run, and figures of the update up to it."""

    path: str = msgspec.field(name="checkpoint")
    density: float | None
    step_density: float | None
    relative_norm: float | None
    stable_rank: float | None
    similarity_to_final: float | None

    @property
    def name(self) -> str:
        """The last part of its path: a report should not reveal paths of the machine that made it."""
        return PurePath(self.path).name


class Growth(msgspec.Struct, frozen=True):
    """How the update of some tensors grew."""

    points: tuple[Point, ...] = msgspec.field(name="checkpoints")
    similarity_by_chance: float | None


class Trajectory(Growth, frozen=True):
    """The checkpoints of a run, and groups of their tensors by ``by``."""

    k: int
    by: str | None
    groups: dict[str, Growth]


class _Figures(msgspec.Struct):
    figures: dict[str, Summary]


class _Total(_Figures):
    concentration: dict[str, Beside]


class _Analysis(msgspec.Struct):
    total: _Total
    roles: dict[str, Energy]
    layers: dict[str, _Figures]
    notes: tuple[str, ...]


def geometry_of(name: str, document: Mapping[str, Any]) -> Geometry:
    """Parse the figures of a stored analysis."""
    stored = checked(_Analysis, document, f"{name} is not an analysis")
    ranks = {layer: group.figures[STABLE] for layer, group in stored.layers.items() if STABLE in group.figures}
    layers = {layer: ranks[layer] for layer in in_order(ranks) if layer and ranks[layer].median is not None}
    figures = dict(sorted(stored.total.figures.items()))
    return Geometry(name, figures, layers, stored.roles, stored.total.concentration, stored.notes)


def trajectory_of(document: Mapping[str, Any]) -> Trajectory:
    """Parse the output of ``maskreg analyze --trajectory --json``."""
    try:
        return checked(Trajectory, document, "not a trajectory")
    except FormatError as error:
        error.facts["no_trajectory"] = True
        raise
