"""The work of an analysis on one tensor: the figures of its matrices, and of the rounding null beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch

from maskreg.analysis.aggregate import MatrixRow, TensorRow
from maskreg.analysis.coverage import Bools
from maskreg.analysis.matrix import AnalysisSpec, Figures, Matrix
from maskreg.analysis.merged_adapter import is_merged
from maskreg.analysis.noise import fitted_scale, noisy, rounded
from maskreg.device import HostDevice
from maskreg.flow.geometry.reading import Bits, TensorUpdate
from maskreg.rules import parse_rule
from maskreg.tensors.blocks import blocks_of
from maskreg.tensors.cast import to_bf16, to_float
from maskreg.tensors.dtypes import WIDE

RULES = ("exact", "abs:1e-05", "rel:0.001")
"""The three rules of the literature, under which sparsity is told at once."""

_MATRIX_ROLES_LEFT_OUT = ("norm",)
_DIGITS = 6
_THREADS_PAY_FROM = 2048


class _Side:
    """One side of a tensor, or its null target: stored bits, which become numbers piece by piece."""

    def __init__(self, bits: Bits, dtype: str) -> None:
        self.bits = bits
        self.dtype = dtype
        self.codes = to_bf16(bits, dtype)

    def numbers(self, at: tuple[int, ...]) -> npt.NDArray[np.float64]:
        return to_float(self.bits[at], self.dtype)


class _Update:
    """What an update made of a tensor.

    Attributes:
        side: the tensor after it.
        moved: by rule, which coordinates moved, bool of the tensor's shape.
        energies: sums of squares of the tensor before, and of the update; not finite where a number is not.
    """

    def __init__(self, before: _Side, after: _Side, rules: Iterable[str]) -> None:
        self.side = after
        self.moved = {rule: _moved(rule, before.codes, after.codes) for rule in rules}
        self.energies = _energies(before, after)

    def counts(self, at: tuple[int, ...] = ()) -> dict[str, int]:
        """Coordinates that moved, by rule, in the tensor or in one of its matrices."""
        return {rule: int(np.count_nonzero(moved[at])) for rule, moved in self.moved.items()}


def measure(pair: TensorUpdate, ask: AnalysisSpec, device: torch.device) -> TensorRow:
    """Everything that is asked of one tensor.

    Its bits are in memory whole, numbers of one of its matrices at a time; of those, a decomposition takes some ten
    copies in float64.

    Args:
        pair: both sides.
        ask: what is wanted.
        device: where matrices are decomposed.
    """
    row = pair.row
    rules = tuple(dict.fromkeys((*RULES, *sorted(ask.thresholds))))
    before = _Side(pair.before, pair.before_dtype)
    update = _Update(before, _Side(pair.after, pair.after_dtype), rules)
    scale = None
    if pair.before_dtype == "BF16":
        scale = fitted_scale(before.codes, update.counts()["exact"])
    null = None if scale is None else _Update(before, _null_target(pair, scale, ask.seed), rules)
    finite = all(map(math.isfinite, update.energies))
    matrices: tuple[MatrixRow, ...] = ()
    if finite and has_matrices(row.role, before.codes.shape):
        with few_threads(min(before.codes.shape[-2:])):
            where = slices_of(before.codes.shape)
            matrices = tuple(_matrix_row(row.role, before, update, null, at, ask, device) for at in where)
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
        scale=scale,
        merged=sum(is_merged(m.figures, m.null) for m in matrices),
        matrices=matrices,
        notes=() if finite else ("holds a NaN or an infinity: no figures of its matrices, no norms",),
    )


def _null_target(pair: TensorUpdate, scale: int, seed: int) -> _Side:
    values = noisy(pair.before, scale, seed, pair.row.name)
    # Beside a master of full precision, whose update was never rounded, stands noise that was not either.
    if pair.after_dtype in WIDE:
        return _Side(values.view(np.uint32), "F32")
    return _Side(rounded(values), "BF16")


@contextmanager
def few_threads(size: int) -> Iterator[None]:
    """Let matrices whose smaller side is ``size`` be worked on by as many of torch's threads as pays.

    Threads that wait for each other make small decompositions several times slower, more so on a busy machine.
    """
    before = torch.get_num_threads()
    if size < _THREADS_PAY_FROM:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _moved(rule: str, before: npt.NDArray[np.uint16], after: npt.NDArray[np.uint16]) -> Bools:
    moved: Bools = HostDevice().moved(parse_rule(rule), before.reshape(-1), after.reshape(-1))
    return moved.reshape(before.shape)


def _energies(before: _Side, after: _Side) -> tuple[float, float]:
    one, other = before.bits.reshape(-1), after.bits.reshape(-1)
    sums = [0.0, 0.0]
    for start, stop in blocks_of(one.size):
        weights = to_float(one[start:stop], before.dtype)
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is told as such
            update = to_float(other[start:stop], after.dtype) - weights
            sums[0] += float(np.square(weights, out=weights).sum())
            sums[1] += float(np.square(update, out=update).sum())
    return sums[0], sums[1]


def has_matrices(role: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor is a matrix or a stack of matrices, of which there are figures."""
    return len(shape) in (2, 3) and min(shape[-2:]) > 1 and role not in _MATRIX_ROLES_LEFT_OUT


def slices_of(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """What to index a tensor with to get its matrices: itself, or each expert of a stack."""
    return [()] if len(shape) == 2 else [(expert,) for expert in range(shape[0])]


def _matrix_row(
    role: str,
    before: _Side,
    update: _Update,
    null: _Update | None,
    at: tuple[int, ...],
    ask: AnalysisSpec,
    device: torch.device,
) -> MatrixRow:
    matrix = Matrix(role, before.codes[at], torch.from_numpy(before.numbers(at)).to(device), ask)

    def of(this: _Update) -> Figures:
        after = torch.from_numpy(this.side.numbers(at)).to(device)
        return _rounded(matrix.figures(after, {rule: moved[at] for rule, moved in this.moved.items()}))

    figures = of(update)
    return MatrixRow(figures, {} if null is None else of(null), _rounded(matrix.chance()), update.counts(at))


def _rounded(figures: Figures) -> Figures:
    return {name: None if value is None else _short(value) for name, value in figures.items()}


def _short(value: float) -> float:
    # The last digits differ between machines.
    return float(f"{value:.{_DIGITS - 1}e}")
