"""Every figure of one matrix's update, and of its rounding null."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from maskreg.analysis.angles import (
    SHARES,
    Factors,
    Method,
    angle_figures,
    decompose,
    projection_figures,
    singular_values,
    spectral_shift,
)
from maskreg.analysis.concentration import count_of
from maskreg.analysis.coverage import Bools, Preset, coverage_of, highest, lowest_magnitudes, principal_scores
from maskreg.analysis.spectrum import figures as rank_figures
from maskreg.analysis.spectrum import gap_figures
from maskreg.checkpoint.roles import ALL, Selection
from maskreg.mask.philox import TILE, philox
from maskreg.mask.rounding import CLASSES, FINENESS, classes_of, fit_scale

# The rounding null as an update: what rounding alone makes of noise as strong as the update.
#
# The null target is ``b(w0 + s z)``: Gaussian noise of one scale per tensor, independent of the weights, rounded to
# bf16. The scale is fitted so that as many coordinates are expected to flip as did flip.
#
# Normal numbers come from counter-based random words (:mod:`maskreg.mask.philox`) by the transform of Box and Muller
# (1958). A tile of 4,096 coordinates has 1,024 counters; counter c gives four words, one for each quarter of the tile:
#
#     with u_k = (word_k + 1/2) / 2^32:
#     z[c], z[1024 + c]        = sqrt(-2 ln u_0) * (cos, sin)(2 pi u_1)
#     z[2048 + c], z[3072 + c] = sqrt(-2 ln u_2) * (cos, sin)(2 pi u_3)
#
# So any span that begins at a tile can be drawn alone. Example: u_0 = e^-2 and u_1 = 1/4 give sqrt(4) * (0, 1) = (0,
# 2). Logarithms and cosines differ in the last bit between machines, and so, rarely, does a rounded number.

_SPAN = 256 * TILE
_COLUMNS = TILE // 4


def normals(seed: int, tensor: str, first: int, numel: int) -> npt.NDArray[np.float32]:
    """Normal numbers of coordinates ``[first, first + numel)`` of a tensor, float32; the first is a multiple of 4,096.

    The tensor's name selects an independent stream.
    """
    if first % TILE:
        raise ValueError(f"coordinate {first} is not at the start of a tile")
    high = int.from_bytes(hashlib.sha256(tensor.encode()).digest()[:8], "little")
    tiles = -(-numel // TILE)
    words = np.empty((4, tiles * _COLUMNS), np.uint32)
    philox(seed, first // TILE * _COLUMNS, high, words)
    # Rows 0 and 2 of the words are u_0 and u_2, rows 1 and 3 are u_1 and u_3.
    radius_words, angle_words = ((words[row::2] + 0.5) / 2**32 for row in (0, 1))
    radius, angle = np.sqrt(-2 * np.log(radius_words)), 2 * np.pi * angle_words
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    numbers = pairs.astype(np.float32).reshape(4, tiles, _COLUMNS).transpose(1, 0, 2).reshape(-1)
    return numbers[:numel]


def fitted_scale(codes: npt.NDArray[np.uint16], nnz: int) -> int | None:
    """The scale of the noise in 2^20ths of an octave; None where it is undefined.

    It is undefined when nothing or everything moved, and when more moved than are finite numbers.
    """
    members = np.zeros(CLASSES, np.int64)
    flat = codes.reshape(-1)
    for start in range(0, flat.size, _SPAN):
        members += np.bincount(classes_of(flat[start : start + _SPAN]), minlength=CLASSES)
    try:
        return fit_scale(members, nnz)
    except ValueError:
        return None


def noisy(codes: npt.NDArray[np.uint16], scale: int, seed: int, tensor: str) -> npt.NDArray[np.float32]:
    """``w0 + s z`` before rounding to bf16, with ``s = 2^(scale / 2^20)``.

    Float32 in the shape of the source's codes.
    """
    values = (codes.reshape(-1).astype(np.uint32) << 16).view(np.float32)
    strength = np.float32(2.0 ** (scale / FINENESS))
    for start in range(0, values.size, _SPAN):
        span = values[start : start + _SPAN]
        span += strength * normals(seed, tensor, start, span.size)
    return values.reshape(codes.shape)


def rounded(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """bf16 codes of numbers, rounded to nearest with ties to even; uint16 in the same shape."""
    codes: npt.NDArray[np.uint16] = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy()
    return codes.view(np.uint16)


METRICS = ("sparsity", "norm", "concentration", "rank", "angles", "shift", "projection", "coverage")
"""Groups of figures that can be selected."""

Figures = dict[str, float | None]


@dataclass(frozen=True)
class AnalysisSpec:
    """Which figures an analysis computes, and how. ``ranks`` are of principal angles, the seed of the rounding null."""

    metrics: frozenset[str]
    ranks: tuple[int, ...]
    presets: tuple[Preset, ...]
    method: Method
    seed: int
    selection: Selection = ALL

    @property
    def thresholds(self) -> frozenset[str]:
        """Rules for "moved" that the presets need."""
        presets = self.presets if "coverage" in self.metrics else ()
        return frozenset(rule for preset in presets for rule in preset.thresholds)

    def to_json(self) -> dict[str, Any]:
        """Everything that determines the figures, for the artifact's lineage recipe."""
        value = {
            "metrics": sorted(self.metrics),
            "ranks": list(self.ranks),
            "presets": {preset.name: preset.to_json() for preset in self.presets},
            "decomposition": {**asdict(self.method), "dtype": "float64"},
            "seed": self.seed,
            "selection": self.selection.to_json(),
        }
        # Through JSON and back, so that it equals what is later read from storage: tuples become lists.
        result: dict[str, Any] = json.loads(json.dumps(value))
        return result


class Matrix:
    """The source of a matrix, with what every update of it shares: its factors and selections.

    It is given as bf16 codes, uint16 ``[m, n]``, and as float64 values on the computing device.
    """

    def __init__(self, role: str, codes: npt.NDArray[np.uint16], values: torch.Tensor, spec: AnalysisSpec) -> None:
        self.role = role
        self.codes = codes
        self.values = values
        self._spec = spec

    @property
    def size(self) -> int:
        """The smaller side."""
        rows, columns = self.codes.shape
        return int(min(rows, columns))

    @cached_property
    def factors(self) -> Factors:
        """Its singular vectors and values."""
        return decompose(self.values, self._spec.method)

    @cached_property
    def selections(self) -> dict[str, tuple[Bools, tuple[str, ...]]]:
        """The presets' selections of coordinates by name, and the rules under which their coverage is given."""
        selections: dict[str, tuple[Bools, tuple[str, ...]]] = {}
        for preset in self._spec.presets:
            if not preset.applies(self.role, self.size):
                continue
            for alpha in preset.alphas:
                rank = preset.rank_for(alpha, self.size)
                count = count_of(alpha, self.codes.size)
                low = lowest_magnitudes(self.codes, count)
                kinds = {"low": low}
                # With all directions the score would be the magnitude itself.
                if rank < self.size and rank <= self.factors.s.numel():
                    principal = highest(principal_scores(self.factors, rank, getattr(torch, preset.dtype)), count)
                    kinds |= {"principal": principal, "principal_not_low": principal & ~low}
                for kind, selected in kinds.items():
                    selections[f"{kind}_{preset.name}_{alpha:.2f}"] = (selected, preset.thresholds)
        return selections

    def chance(self) -> Figures:
        """Figures expected of an update that knows nothing, not even of rounding, where they have a formula."""
        expected: Figures = {}
        if "projection" in self._spec.metrics:
            for share in SHARES:
                k = max(1, int(share * self.size))
                expected |= {f"projection_{share:.2f}": k**2 / self.codes.size, f"projection_lift_{share:.2f}": 1.0}
        if "coverage" in self._spec.metrics:
            for name, (selected, rules) in self.selections.items():
                expected |= {f"{name}@{rule}": float(np.count_nonzero(selected) / selected.size) for rule in rules}
        return expected

    def figures(self, after: torch.Tensor, moved: Mapping[str, Bools]) -> Figures:
        """Every selected figure of one update.

        Args:
            after: float64 ``[m, n]`` on the device of the source.
            moved: by rule, bool ``[m, n]``.
        """
        spec, update = self._spec, after - self.values
        energy = float(update.square().sum())
        figures: Figures = {}
        if "norm" in spec.metrics:
            whole = float(self.values.square().sum())
            figures["relative_norm"] = math.sqrt(energy / whole) if whole > 0 else None
        if "rank" in spec.metrics:
            values = singular_values(update, spec.method) if energy > 0 else np.zeros(0)
            figures |= {**rank_figures(values, energy, self.size), **gap_figures(values, energy)}
        if {"angles", "shift"} & spec.metrics:
            figures |= self._rotation(after, energy)
        if "projection" in spec.metrics:
            figures |= projection_figures(self.factors, update)
        if "coverage" in spec.metrics:
            for name, (selected, rules) in self.selections.items():
                figures |= {f"{name}@{rule}": coverage_of(selected, moved[rule]) for rule in rules}
        return figures

    def _rotation(self, after: torch.Tensor, energy: float) -> Figures:
        spec, figures = self._spec, Figures()
        if "angles" in spec.metrics:
            factors = decompose(after, spec.method)
            spectrum = factors.values
            for rank in spec.ranks:
                figures |= angle_figures(self.factors, factors, rank, self.size)
        else:
            spectrum = singular_values(after, spec.method)
        if "shift" in spec.metrics:
            # Of whole spectra only: the largest singular values alone would hide most of a shift.
            exact = spec.method.is_exact(self.codes.shape)
            shift = spectral_shift(self.factors.values, spectrum) if exact else None
            norm = math.sqrt(energy / float(self.values.square().sum())) if shift is not None else 0.0
            figures |= {"nss": shift, "nss_of_norm": shift / norm if shift is not None and norm > 0 else None}
        return figures
