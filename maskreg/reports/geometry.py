"""A stored analysis and a trajectory, parsed and ready to be drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from maskreg.document import checked
from maskreg.errors import FormatError
from maskreg.reports.modules import in_order

TOP = "energy_top_"
STABLE = "stable_rank"


@dataclass(frozen=True)
class Summary:
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


@dataclass(frozen=True)
class Beside:
    """A pooled figure and the rounding null's; None where it is undefined."""

    value: float | None
    null: float | None


@dataclass(frozen=True)
class Energy:
    """Where an update's energy lies."""

    param_share: float | None
    energy_share: Beside
    energy_lift: Beside


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


@dataclass(frozen=True)
class Point:
    """One checkpoint of a run, and figures of the update up to it."""

    checkpoint: str
    density: float | None
    step_density: float | None
    relative_norm: float | None
    stable_rank: float | None
    similarity_to_final: float | None

    @property
    def name(self) -> str:
        """The last part of its path: a report should not reveal paths of the machine that made it."""
        return PurePath(self.checkpoint).name


@dataclass(frozen=True)
class Growth:
    """How the update of some tensors grew."""

    checkpoints: tuple[Point, ...]
    similarity_by_chance: float | None


@dataclass(frozen=True)
class Trajectory(Growth):
    """The checkpoints of a run, and groups of their tensors by ``by``."""

    k: int
    by: str | None
    groups: dict[str, Growth]


@dataclass(frozen=True)
class _Figures:
    figures: dict[str, Summary]


@dataclass(frozen=True)
class _Total(_Figures):
    concentration: dict[str, Beside]


@dataclass(frozen=True)
class _Analysis:
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
