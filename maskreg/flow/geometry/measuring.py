"""The work of an analysis on one tensor: figures of its matrices, beside the rounding null."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from maskreg.analysis.aggregate import MatrixRow, TensorRow
from maskreg.analysis.concentration import top_energies
from maskreg.analysis.coverage import Bools
from maskreg.analysis.matrix import AnalysisSpec, Figures, Matrix, fitted_scale, noisy, rounded
from maskreg.analysis.spectrum import is_merged
from maskreg.device import HostDevice
from maskreg.disk import make_folder, replacing
from maskreg.document import canonical, checked, parse_object
from maskreg.errors import CannotCreateError, DataError
from maskreg.flow.geometry.reading import Bits, TensorUpdate
from maskreg.limits import LIMITS
from maskreg.result import plain
from maskreg.tensors.cast import to_bf16, to_float
from maskreg.tensors.info import WIDE, blocks_of
from maskreg.tensors.rules import parse_rule

RULES = ("exact", "abs:1e-05", "rel:0.001")
"""The three rules of the literature; sparsity is measured under each."""

_MATRIX_ROLES_LEFT_OUT = ("norm",)
_DIGITS = 6
_THREADS_PAY_FROM = 2048


class _Side:
    """One side of a tensor, or its null target: stored bits, converted to numbers matrix by matrix."""

    def __init__(self, bits: Bits, dtype: str) -> None:
        self.bits = bits
        self.dtype = dtype
        self.codes = to_bf16(bits, dtype)

    def numbers(self, index: tuple[int, ...]) -> npt.NDArray[np.float64]:
        return to_float(self.bits[index], self.dtype)


class _Update:
    """A tensor after an update, beside the tensor before: which coordinates moved, by rule, and the energies of both.

    Energies are not finite if a number is not.
    """

    def __init__(self, before: _Side, after: _Side, rules: Iterable[str]) -> None:
        self.side = after
        self.moved = {rule: moved_by(rule, before.codes, after.codes) for rule in rules}
        self.energies = _energies(before, after)

    def counts(self, index: tuple[int, ...] = ()) -> dict[str, int]:
        """Coordinates that moved, by rule, in the tensor or in one of its matrices."""
        return {rule: int(np.count_nonzero(moved[index])) for rule, moved in self.moved.items()}


def measure(tensor: TensorUpdate, spec: AnalysisSpec, device: torch.device) -> TensorRow:
    """All figures of one tensor.

    All of its bits are in memory, but numbers of one matrix at a time; a decomposition takes about ten copies of
    these in float64.
    """
    row = tensor.row
    rules = tuple(dict.fromkeys((*RULES, *sorted(spec.thresholds))))
    before = _Side(tensor.before, tensor.before_dtype)
    update = _Update(before, _Side(tensor.after, tensor.after_dtype), rules)
    scale = None
    if tensor.before_dtype == "BF16":
        scale = fitted_scale(before.codes, update.counts()["exact"])
    null = None if scale is None else _Update(before, _null_target(tensor, scale, spec.seed), rules)
    finite = all(map(math.isfinite, update.energies))
    matrices: tuple[MatrixRow, ...] = ()
    if finite and has_matrices(row.role, before.codes.shape):
        with few_threads(min(before.codes.shape[-2:])):
            matrices = tuple(_matrices(row.role, before, update, null, spec, device))
    source_energy, energy = update.energies if finite else (0.0, 0.0)
    return TensorRow(
        name=row.name,
        role=row.role,
        layer=row.layer,
        shape=tuple(before.codes.shape),
        numel=row.numel,
        moved=update.counts(),
        null_moved=None if null is None else null.counts(),
        energies=(_short(source_energy), _short(energy), _short(null.energies[1]) if null and finite else None),
        top_energies=(_tops(before, update, spec), {} if null is None else _tops(before, null, spec)),
        scale=scale,
        merged=sum(is_merged(m.figures, m.null) for m in matrices),
        matrices=matrices,
        notes=() if finite else ("holds a NaN or an infinity: no figures of its matrices, no norms",),
    )


def _matrices(
    role: str, before: _Side, update: _Update, null: _Update | None, spec: AnalysisSpec, device: torch.device
) -> Iterator[MatrixRow]:
    """The matrices of a tensor, with its update and the rounding null."""

    def figures(matrix: Matrix, of: _Update) -> Figures:
        after = torch.from_numpy(of.side.numbers(index)).to(device)
        return _rounded(matrix.figures(after, {rule: moved[index] for rule, moved in of.moved.items()}))

    for index in slices_of(before.codes.shape):
        matrix = Matrix(role, before.codes[index], torch.from_numpy(before.numbers(index)).to(device), spec)
        by_null = {} if null is None else figures(matrix, null)
        yield MatrixRow(figures(matrix, update), by_null, _rounded(matrix.chance()), update.counts(index))


def _null_target(tensor: TensorUpdate, scale: int, seed: int) -> _Side:
    values = noisy(tensor.before, scale, seed, tensor.row.name)
    # The update of a full-precision master was never rounded, so neither is its null.
    if tensor.after_dtype in WIDE:
        return _Side(values.view(np.uint32), "F32")
    return _Side(rounded(values), "BF16")


@contextmanager
def few_threads(size: int) -> Iterator[None]:
    """Use one torch thread for matrices whose smaller side ``size`` is small.

    Synchronization makes small decompositions several times slower on many threads, more so on a busy machine.
    """
    before = torch.get_num_threads()
    if size < _THREADS_PAY_FROM:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def moved_by(rule: str, before: npt.NDArray[np.uint16], after: npt.NDArray[np.uint16]) -> Bools:
    """Which coordinates moved under a rule, bool in the shape of both bf16 codes."""
    moved: Bools = HostDevice().moved(parse_rule(rule), before.reshape(-1), after.reshape(-1))
    return moved.reshape(before.shape)


def _tops(before: _Side, update: _Update, spec: AnalysisSpec) -> dict[str, float]:
    if "concentration" not in spec.metrics or not all(map(math.isfinite, update.energies)):
        return {}

    def blocks() -> Iterator[npt.NDArray[np.float64]]:
        return (difference for _, difference in _differences(before, update.side))

    return {name: _short(energy) for name, energy in top_energies(blocks, before.codes.size).items()}


def _differences(before: _Side, after: _Side) -> Iterator[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    """The numbers of a tensor before an update, and the update, block by block."""
    bits, changed = before.bits.reshape(-1), after.bits.reshape(-1)
    for start, stop in blocks_of(bits.size):
        weights = to_float(bits[start:stop], before.dtype)
        with np.errstate(invalid="ignore"):
            yield weights, to_float(changed[start:stop], after.dtype) - weights


def _energies(before: _Side, after: _Side) -> tuple[float, float]:
    sums = [0.0, 0.0]
    for weights, update in _differences(before, after):
        with np.errstate(invalid="ignore", over="ignore"):  # the caller reports what is not finite
            sums[0] += float(np.square(weights, out=weights).sum())
            sums[1] += float(np.square(update, out=update).sum())
    return sums[0], sums[1]


def has_matrices(role: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor is a matrix or a stack of matrices that is measured."""
    return len(shape) in (2, 3) and min(shape[-2:]) > 1 and role not in _MATRIX_ROLES_LEFT_OUT


def slices_of(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Indices of a tensor's matrices: the tensor itself, or each expert of a stack."""
    return [()] if len(shape) == 2 else [(expert,) for expert in range(shape[0])]


def _rounded(figures: Figures) -> Figures:
    return {name: None if value is None else _short(value) for name, value in figures.items()}


def _short(value: float) -> float:
    # The last digits differ between machines.
    return float(f"{value:.{_DIGITS - 1}e}")


WORK = "analysis"
"""Folder of a local registry for the finished tensors of measurements in progress."""


class Row(Protocol):
    """A dataclass of the figures of a tensor."""

    @property
    def name(self) -> str:
        """Of the tensor."""


RowT = TypeVar("RowT", bound=Row)


class FinishedTensors:
    """Finished tensors of one measurement, one file each, in a folder named after everything that decides the figures.

    ::

        analysis/<sha256 of what decides>/000000.json    {"name": "model.embed_tokens.weight", ...}
    """

    def __init__(self, root: Path, decides: object) -> None:
        """The tensors of a measurement."""
        self._folder = root / WORK / hashlib.sha256(canonical(decides)).hexdigest()[:32]

    def load(self, number: int, name: str, kind: type[RowT]) -> RowT | None:
        """The figures of a tensor; None where it was not finished, or has to be measured again."""
        path, limits = self._path(number), LIMITS
        try:
            value = parse_object(
                path.read_bytes(), path.name, max_bytes=limits.analysis_bytes, max_values=limits.analysis_values
            )
            row = checked(kind, value, path.name)
        except (FileNotFoundError, DataError):
            # A piece that is damaged was cut short by a crash, or is of another version.
            return None
        return row if row.name == name else None

    def keep(self, number: int, row: Row) -> None:
        """Keep the figures of a tensor."""
        try:
            make_folder(self._folder)
            with replacing(self._path(number), sync=False) as file:
                file.write(canonical(plain(row)))
        except (FileNotFoundError, CannotCreateError) as error:
            # Another process has finished the same measurement, and removes the folder.
            if isinstance(error, CannotCreateError) and self._folder.is_dir():
                raise

    def remove(self) -> None:
        """Forget them, because all are finished."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06}.json"
