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


@dataclass(frozen=True)
class FigureMedian:
    """The median of a figure over matrices, with its rounding null.

    Attributes:
        value: of the update; None where no matrix has the figure.
        null: of the rounding null; None where no matrix has the figure.
        chance: its mean expectation for an update that knows nothing; None where it has no formula.
    """

    value: float | None
    null: float | None
    chance: float | None


@dataclass(frozen=True)
class Geometry:
    """The geometry of an update.

    Attributes:
        name: the analysis' ref.
        figures: by name.
        layers: stable rank by layer, in the order of the model.
        notes: caveats, one sentence each.
    """

    name: str
    figures: dict[str, FigureMedian]
    layers: dict[str, FigureMedian]
    notes: tuple[str, ...]

    @property
    def energies(self) -> dict[int, FigureMedian]:
        """Share of the energy in the ``k`` largest singular directions, by k."""
        tops = {name.removeprefix(TOP): median for name, median in self.figures.items() if name.startswith(TOP)}
        return dict(sorted((int(k), median) for k, median in tops.items() if k.isdigit() and median.value is not None))


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
class Trajectory:
    """The checkpoints of a run.

    Attributes:
        points: in the order of the run.
        k: directions that similarity compares.
        similarity_by_chance: of random directions; None without a matrix.
    """

    points: tuple[Point, ...]
    k: int
    similarity_by_chance: float | None


def geometry_of(name: str, document: Mapping[str, Any]) -> Geometry:
    """Parse the figures of a stored analysis.

    Raises:
        FormatError: the document is not an analysis.
    """
    try:
        figures = {key: _median(value) for key, value in document["total"]["figures"].items()}
        layers = {
            layer: _median(group["figures"][STABLE])
            for layer, group in document["layers"].items()
            if layer and STABLE in group["figures"]
        }
        notes = tuple(str(note) for note in document["notes"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatError(f"{name} is not an analysis: {error!r}") from error
    shown = {layer: layers[layer] for layer in in_order(layers) if layers[layer].value is not None}
    return Geometry(name, dict(sorted(figures.items())), shown, notes)


def trajectory_of(document: Mapping[str, Any]) -> Trajectory:
    """Parse the output of ``maskreg analyze --trajectory --json``.

    Raises:
        FormatError: the document is not a trajectory.
    """
    try:
        points = tuple(_point(row) for row in document["checkpoints"])
        return Trajectory(points, int(document["k"]), _number(document["similarity_by_chance"]))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatError(
            f"not a trajectory: {error!r}", hint="maskreg analyze --trajectory SOURCE CHECKPOINT... --json > FILE"
        ) from error


def _median(value: Mapping[str, Any]) -> FigureMedian:
    return FigureMedian(_number(value["median"]), _number(value["null_median"]), _number(value["chance"]))


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
