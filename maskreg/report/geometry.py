"""What a stored analysis and a trajectory say, checked and ready to be drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from maskreg.errors import FormatError
from maskreg.report.modules import in_order

TOP = "energy_top_"
STABLE = "stable_rank"


@dataclass(frozen=True)
class Beside:
    """The median of a figure over matrices, of the update and of what rounding alone makes of noise as strong.

    Attributes:
        value: None where no matrix has the figure.
        null: likewise.
        chance: its mean expectation for an update that knows nothing, where there is one.
    """

    value: float | None
    null: float | None
    chance: float | None


@dataclass(frozen=True)
class Geometry:
    """The geometry of an update.

    Attributes:
        name: what people call the analysis.
        figures: by name.
        layers: stable rank by layer, in the order of the model.
        notes: what people should know, one sentence each.
    """

    name: str
    figures: dict[str, Beside]
    layers: dict[str, Beside]
    notes: tuple[str, ...]

    @property
    def energies(self) -> dict[int, Beside]:
        """Share of the energy in the ``k`` largest singular directions, by k."""
        found = {name.removeprefix(TOP): beside for name, beside in self.figures.items() if name.startswith(TOP)}
        return dict(sorted((int(k), beside) for k, beside in found.items() if k.isdigit() and beside.value is not None))


@dataclass(frozen=True)
class Point:
    """One checkpoint of a run: its name, and figures of the update that led to it."""

    name: str
    density: float | None
    step_density: float | None
    relative_norm: float | None
    stable_rank: float | None
    similarity_to_final: float | None


@dataclass(frozen=True)
class Trajectory:
    """How an update grew.

    Attributes:
        points: in the order of the run.
        k: directions that similarity compares.
        similarity_by_chance: of random directions; None when there is no matrix.
    """

    points: tuple[Point, ...]
    k: int
    similarity_by_chance: float | None


def geometry_of(name: str, document: Mapping[str, Any]) -> Geometry:
    """Parse the figures of a stored analysis.

    Raises:
        FormatError: they are not what an analysis holds.
    """
    try:
        figures = {key: _beside(value) for key, value in document["total"]["figures"].items()}
        layers = {
            layer: _beside(group["figures"][STABLE])
            for layer, group in document["layers"].items()
            if layer and STABLE in group["figures"]
        }
        notes = tuple(str(note) for note in document["notes"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatError(f"{name} is no analysis: {error!r}") from error
    shown = {layer: layers[layer] for layer in in_order(layers) if layers[layer].value is not None}
    return Geometry(name, dict(sorted(figures.items())), shown, notes)


def trajectory_of(document: Mapping[str, Any]) -> Trajectory:
    """Parse what ``maskreg analyze --trajectory --json`` wrote.

    Raises:
        FormatError: it is something else.
    """
    try:
        points = tuple(_point(row) for row in document["checkpoints"])
        return Trajectory(points, int(document["k"]), _number(document["similarity_by_chance"]))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatError(
            f"this is no trajectory: {error!r}", hint="maskreg analyze --trajectory SOURCE CHECKPOINT... --json > FILE"
        ) from error


def _beside(value: Mapping[str, Any]) -> Beside:
    return Beside(_number(value["median"]), _number(value["null_median"]), _number(value["chance"]))


def _point(row: Mapping[str, Any]) -> Point:
    # The folder alone: where a run lay on somebody's disk is nobody's business.
    keys = ("density", "step_density", "relative_norm", "stable_rank", "similarity_to_final")
    return Point(PurePath(row["checkpoint"]).name, *(_number(row[key]) for key in keys))


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"{value!r} is no number")
    return float(value)
