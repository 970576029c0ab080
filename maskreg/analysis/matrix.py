"""Every figure of one matrix's update, and of the update that stands beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from maskreg.analysis.angles import SHARES, angle_figures, projection_figures, spectral_shift
from maskreg.analysis.coverage import Bools, count_of, coverage_of, highest, lowest_magnitudes, principal_scores
from maskreg.analysis.factors import Factors, Method, decompose, singular_values
from maskreg.analysis.merged_adapter import gap_figures
from maskreg.analysis.presets import Preset
from maskreg.analysis.spectrum import figures as rank_figures

METRICS = ("sparsity", "norm", "rank", "angles", "shift", "projection", "coverage")
"""Groups of figures that can be asked for."""

Figures = dict[str, float | None]


@dataclass(frozen=True)
class AnalysisSpec:
    """What is asked of every matrix.

    Attributes:
        metrics: groups of :data:`METRICS`.
        ranks: directions of principal angles.
        presets: definitions of coverage.
        method: how matrices are decomposed.
        seed: of the rounding null.
    """

    metrics: frozenset[str]
    ranks: tuple[int, ...]
    presets: tuple[Preset, ...]
    method: Method
    seed: int

    @property
    def thresholds(self) -> frozenset[str]:
        """Rules for "moved" that the presets ask for."""
        wanted = "coverage" in self.metrics
        return frozenset(rule for preset in self.presets for rule in preset.thresholds) if wanted else frozenset()

    def to_json(self) -> dict[str, Any]:
        """Everything that decides the figures, for the record."""
        value = {
            "metrics": sorted(self.metrics),
            "ranks": list(self.ranks),
            "presets": {preset.name: preset.to_json() for preset in self.presets},
            "decomposition": {**asdict(self.method), "dtype": "float64"},
            "seed": self.seed,
        }
        # What it will be once it was stored and read again, tuples and all.
        found: dict[str, Any] = json.loads(json.dumps(value))
        return found


class Matrix:
    """The source's side of a matrix: what is the same for every update of it.

    Attributes:
        role: of its tensor.
        codes: bf16 codes, uint16 ``[m, n]``.
        values: float64 ``[m, n]`` on the device that works.
    """

    def __init__(self, role: str, codes: npt.NDArray[np.uint16], values: torch.Tensor, ask: AnalysisSpec) -> None:
        self.role = role
        self.codes = codes
        self.values = values
        self._ask = ask

    @property
    def size(self) -> int:
        """The smaller side."""
        rows, columns = self.codes.shape
        return int(min(rows, columns))

    @cached_property
    def factors(self) -> Factors:
        """Its singular vectors and values."""
        return decompose(self.values, self._ask.method)

    @cached_property
    def choices(self) -> dict[str, tuple[Bools, tuple[str, ...]]]:
        """Coordinates that the presets choose, by name, and the rules that they are told under."""
        found: dict[str, tuple[Bools, tuple[str, ...]]] = {}
        for preset in self._ask.presets:
            if not preset.applies(self.role, self.size):
                continue
            for alpha in preset.alphas:
                rank = preset.rank_for(alpha, self.size)
                count = count_of(alpha, self.codes.size)
                low = lowest_magnitudes(self.codes, count)
                chosen = {"low": low}
                # With every direction there is, the score would be the magnitude.
                if rank < self.size and rank <= self.factors.s.numel():
                    principal = highest(principal_scores(self.factors, rank, getattr(torch, preset.dtype)), count)
                    chosen |= {"principal": principal, "principal_not_low": principal & ~low}
                for kind, mask in chosen.items():
                    found[f"{kind}_{preset.name}_{alpha:.2f}"] = (mask, preset.thresholds)
        return found

    def chance(self) -> Figures:
        """What an update that knows nothing, not even of rounding, gives: by figure, where there is such a number."""
        found: Figures = {}
        if "projection" in self._ask.metrics:
            for share in SHARES:
                k = max(1, int(share * self.size))
                found |= {f"projection_{share:.2f}": k**2 / self.codes.size, f"projection_lift_{share:.2f}": 1.0}
        if "coverage" in self._ask.metrics:
            for name, (chosen, rules) in self.choices.items():
                found |= {f"{name}@{rule}": float(np.count_nonzero(chosen) / chosen.size) for rule in rules}
        return found

    def figures(self, after: torch.Tensor, moved: Mapping[str, Bools]) -> Figures:
        """Every figure of one update that was asked for.

        Args:
            after: the matrix after it, float64 ``[m, n]`` on the device of the source.
            moved: by rule, which coordinates count as moved, bool ``[m, n]``.
        """
        ask, update = self._ask, after - self.values
        energy = float(update.square().sum())
        found: Figures = {}
        if "norm" in ask.metrics:
            whole = float(self.values.square().sum())
            found["relative_norm"] = math.sqrt(energy / whole) if whole > 0 else None
        if "rank" in ask.metrics:
            values = singular_values(update, ask.method) if energy > 0 else np.zeros(0)
            found |= {**rank_figures(values, energy, self.size), **gap_figures(values, energy)}
        if {"angles", "shift"} & ask.metrics:
            found |= self._turned(after, energy)
        if "projection" in ask.metrics:
            found |= projection_figures(self.factors, update)
        if "coverage" in ask.metrics:
            for name, (chosen, rules) in self.choices.items():
                found |= {f"{name}@{rule}": coverage_of(chosen, moved[rule]).covered for rule in rules}
        return found

    def _turned(self, after: torch.Tensor, energy: float) -> Figures:
        ask, found = self._ask, Figures()
        if "angles" in ask.metrics:
            turned = decompose(after, ask.method)
            spectrum = turned.values
            for rank in ask.ranks:
                found |= angle_figures(self.factors, turned, rank, self.size)
        else:
            spectrum = singular_values(after, ask.method)
        if "shift" in ask.metrics:
            # The largest alone would hide most of a shift.
            exact = ask.method.is_exact(self.codes.shape)
            shift = spectral_shift(self.factors.values, spectrum) if exact else None
            norm = math.sqrt(energy / float(self.values.square().sum())) if shift is not None else 0.0
            found |= {"nss": shift, "nss_of_norm": shift / norm if shift is not None and norm > 0 else None}
        return found
