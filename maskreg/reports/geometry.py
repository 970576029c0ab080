"""A stored analysis and a trajectory, parsed and ready to be drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from maskreg.errors import FormatError
from maskreg.reports.modules import in_order

TOP = "energy_top_"
STABLE = "stable_rank"

_KEYS = ("mean", "null_mean", "median", "null_median", "chance")


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
    weighted: float | None = None
    null_weighted: float | None = None
    chance: float | None = None


@dataclass(frozen=True)
class Beside:
    """A pooled figure and the rounding null's; None where it is undefined."""

    value: float | None
    null: float | None


@dataclass(frozen=True)
class Energy:
    """Where an update's energy lies."""

    param_share: float | None
    share: Beside
    lift: Beside


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
    """One checkpoint of a run: its name, and figures of the update up to it."""

    name: str
    density: float | None
    step_density: float | None
    relative_norm: float | None
    stable_rank: float | None
    similarity_to_final: float | None


@dataclass(frozen=True)
class Growth:
    """How the update of some tensors grew."""

    points: tuple[Point, ...]
    similarity_by_chance: float | None


@dataclass(frozen=True)
class Trajectory(Growth):
    """The checkpoints of a run."""

    k: int
    by: str
    groups: Mapping[str, Growth]


def geometry_of(name: str, document: Mapping[str, Any]) -> Geometry:
    """Parse the figures of a stored analysis."""
    try:
        figures = {key: _summary(value) for key, value in document["total"]["figures"].items()}
        layers = {
            layer: _summary(group["figures"][STABLE])
            for layer, group in document["layers"].items()
            if layer and STABLE in group["figures"]
        }
        energy = {str(role): _energy(group) for role, group in document["roles"].items()}
        concentration = {str(name): _beside(top) for name, top in document["total"]["concentration"].items()}
        notes = tuple(str(note) for note in document["notes"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatError(f"{name} is not an analysis: {error!r}") from error
    shown = {layer: layers[layer] for layer in in_order(layers) if layers[layer].median is not None}
    return Geometry(name, dict(sorted(figures.items())), shown, energy, concentration, notes)


def trajectory_of(document: Mapping[str, Any]) -> Trajectory:
    """Parse the output of ``maskreg analyze --trajectory --json``."""
    try:
        groups = {str(label): Growth(*_growth(group)) for label, group in document["groups"].items()}
        return Trajectory(*_growth(document), int(document["k"]), str(document["by"] or ""), groups)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatError(f"not a trajectory: {error!r}", no_trajectory=True) from error


def _summary(value: Mapping[str, Any]) -> Summary:
    mean, null_mean, median, null_median, chance = (_number(value[key]) for key in _KEYS)
    # Only coverage has a weighted mean.
    weighted, null_weighted = (_number(value.get(key)) for key in ("weighted", "null_weighted"))
    return Summary(mean, null_mean, median, null_median, weighted, null_weighted, chance)


def _energy(group: Mapping[str, Any]) -> Energy:
    return Energy(_number(group["param_share"]), _beside(group["energy_share"]), _beside(group["energy_lift"]))


def _beside(figure: Mapping[str, Any]) -> Beside:
    return Beside(_number(figure["value"]), _number(figure["null"]))


def _growth(group: Mapping[str, Any]) -> tuple[tuple[Point, ...], float | None]:
    return tuple(_point(row) for row in group["checkpoints"]), _number(group["similarity_by_chance"])


def _point(row: Mapping[str, Any]) -> Point:
    # Only the last component: a report should not reveal paths of the machine that made it.
    keys = ("density", "step_density", "relative_norm", "stable_rank", "similarity_to_final")
    return Point(PurePath(row["checkpoint"]).name, *(_number(row[key]) for key in keys))


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"{value!r} is not a finite number")
    return float(value)
