"""Baselines: masks to compare a mask with, or to retrain in its place. Each keeps one property of the mask.

Here are the kinds, how many coordinates each takes of which class (a :class:`~maskreg.mask.draw.Quota`), and the
:class:`Choice` that turns a span of the source's codes and the mask's bits into the baseline's bits. No I/O:
:mod:`maskreg.flow.baseline` reads the tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.errors import UsageError
from maskreg.mask.draw import Draw, Quota
from maskreg.mask.packed import flip, unpack
from maskreg.mask.ranking import Smallest
from maskreg.mask.rounding import OFF_GRID, ON_GRID, Start, classes_of, drawing_chances, fit_scale, why_no_scale
from maskreg.words import counted

DEFAULT_ALPHA = 0.5
"""Share of each matrix that the safe mask takes as principal and as small ("The Path Not Taken", arXiv 2511.08567)."""

MAX_SEED = (1 << 64) - 1

Bits = npt.NDArray[np.uint8]
Codes = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.int64]


class ClassBy(Enum):
    """What the class of a coordinate depends on. Coordinates of one class are equally likely to be drawn."""

    NOTHING = "one class"
    MEMBERSHIP = "class 1 inside the mask, class 0 outside"
    CODE = "exponent, and whether the mantissa is 0"

    def classes(self, codes: Codes | None, packed: Bits | None, numel: int) -> npt.NDArray[np.uint16] | None:
        """Class of each coordinate of a span, uint16 ``[numel]``; None when there is one class.

        ``CODE`` needs the source's bf16 codes, ``MEMBERSHIP`` the mask's bits.
        """
        if self is ClassBy.CODE and codes is not None:
            return classes_of(codes)
        if self is ClassBy.MEMBERSHIP and packed is not None:
            return unpack(packed, numel).astype(np.uint16)
        return None


@dataclass(frozen=True)
class Kind:
    """A kind of baseline.

    Attributes:
        seeded: whether coordinates are drawn at random.
        source: whether the source's values are needed.
        options: which of ``density``, ``rank`` and ``alpha`` it takes.
        class_by: what the classes of a seeded kind depend on.
        whole: counts are matched for the whole model, not for each tensor.
    """

    name: str
    seeded: bool = False
    source: bool = False
    options: tuple[str, ...] = ()
    class_by: ClassBy = ClassBy.NOTHING
    whole: bool = False


_by_code = partial(Kind, seeded=True, source=True, class_by=ClassBy.CODE)

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("random-global", seeded=True, whole=True),
        Kind("random-per-tensor", seeded=True),
        _by_code("exponent-matched"),
        _by_code("rounding-null"),
        _by_code("off-grid-null"),
        Kind("low-magnitude", source=True),
        Kind("principal", source=True, options=("rank",)),
        Kind("safe", source=True, options=("rank", "alpha")),
        Kind("subset", seeded=True, options=("density",), class_by=ClassBy.MEMBERSHIP, whole=True),
        Kind("complement"),
    )
}
"""Every kind, by name; the command that makes baselines explains them in its help."""

STARTS: Mapping[str, Start] = {"rounding-null": ON_GRID, "off-grid-null": OFF_GRID}
"""Where in its rounding cell a weight starts, by the kinds that are rounding alone."""


@dataclass(frozen=True)
class BaselineSpec:
    """How to make a baseline: its kind and every parameter that decides its bits.

    Attributes:
        seed: 64 bits; None for kinds without randomness.
        density: for ``subset``: share of all coordinates.
        rank: of the low-rank approximation; None for a tenth of each matrix's shorter side.
        alpha: for ``safe``: share that is principal, and share that is small.
    """

    kind: Kind
    seed: int | None = None
    density: float | None = None
    rank: int | None = None
    alpha: float | None = None

    @classmethod
    def of(
        cls,
        kind: str,
        *,
        seed: int | None = None,
        density: float | None = None,
        rank: int | None = None,
        alpha: float | None = None,
    ) -> BaselineSpec:
        """Check the parameters and fill in defaults."""
        if kind not in KINDS:
            raise UsageError(f"unknown baseline {kind!r}", hint=f"one of: {', '.join(KINDS)}")
        entry = KINDS[kind]
        for name, value in (("density", density), ("rank", rank), ("alpha", alpha)):
            if value is not None and name not in entry.options:
                raise UsageError(f"{kind} takes no {name}", hint=f"leave the {name} out")
        if seed is not None and not entry.seeded:
            raise UsageError(f"{kind} takes no seed: it is not random", hint="leave the seed out")
        if "density" in entry.options and density is None:
            raise UsageError(f"{kind} needs a density", hint="give one such as 0.1", options={"density": 0.1})
        if "alpha" in entry.options and alpha is None:
            alpha = DEFAULT_ALPHA
        seed = (seed or 0) if entry.seeded else None
        _check_numbers(seed, density, rank, alpha)
        return cls(entry, seed, density, rank, alpha)

    def to_json(self) -> dict[str, Any]:
        """The manifest's lineage recipe; parameters that do not apply are left out."""
        fields = {"seed": self.seed, "density": self.density, "rank": self.rank, "alpha": self.alpha}
        return {"kind": self.kind.name, **{name: value for name, value in fields.items() if value is not None}}


def _check_numbers(seed: int | None, density: float | None, rank: int | None, alpha: float | None) -> None:
    for name, number in (("seed", seed), ("rank", rank)):
        if number is not None and type(number) is not int:
            raise UsageError(f"{name} {number} is not a whole number", hint=f"give a {name} such as 1")
    if seed is not None and not 0 <= seed <= MAX_SEED:
        raise UsageError(f"seed {seed} does not fit 64 bits", hint="a seed from 0 to 2^64 - 1")
    for name, share in (("density", density), ("alpha", alpha)):
        if share is not None and not 0 <= share <= 1:
            raise UsageError(f"{name} {share} must be between 0 and 1", hint="give a share from 0 to 1")
    if density == 0:
        raise UsageError("a subset of density 0 is empty", hint="give a density above 0")
    if alpha in (0, 1):
        raise UsageError(f"at alpha {alpha:g} every coordinate is safe", hint="give an alpha above 0 and below 1")
    if rank is not None and rank < 1:
        raise UsageError(f"rank {rank} must be at least 1", hint="give a rank of at least 1")


Choice = Callable[[int, int, Codes | None, Bits | None], Bits]
"""Packed bits of a span: of its first coordinate, a multiple of 4,096, how many it has, the source's codes for kinds
that need them, and the mask's bits."""


def drawn(draw: Draw, tensor: int, completed: Counts, class_by: ClassBy) -> Choice:
    """Coordinates that were drawn at random: below borders, and ``completed``, int64 ascending, inside the windows."""
    return lambda first, numel, codes, packed: draw.packed(
        tensor, first, numel, completed, class_by.classes(codes, packed, numel)
    )


def small(which: Smallest) -> Choice:
    """The smallest magnitudes."""
    return lambda first, numel, codes, packed: which.packed(first, np.empty(0, np.uint16) if codes is None else codes)


def kept(bits: Bits) -> Choice:
    """Bits of the whole tensor, computed beforehand."""
    return lambda first, numel, codes, packed: bits[first // 8 : first // 8 + -(-numel // 64) * 8]


def safe(principal: Choice, low: Choice) -> Choice:
    """Coordinates that are not principal, or are small."""
    return lambda first, numel, codes, packed: (
        flip(principal(first, numel, codes, packed), numel) | low(first, numel, codes, packed)
    )


def mask_itself(first: int, numel: int, codes: Codes | None, packed: Bits | None) -> Bits:
    """The mask's own bits: a :class:`Choice` for tensors that have no such baseline."""
    return np.empty(0, np.uint8) if packed is None else packed


def complement(first: int, numel: int, codes: Codes | None, packed: Bits | None) -> Bits:
    """The mask's bits, flipped: a :class:`Choice`."""
    return np.empty(0, np.uint8) if packed is None else flip(packed, numel)


def quota_of_model(spec: BaselineSpec, numel: int, nnz: int) -> Quota:
    """Quota of a kind whose counts are matched for the whole model."""
    if spec.kind.class_by is ClassBy.NOTHING:
        return Quota.by_class(np.array([numel]), np.array([nnz]))
    size = round((spec.density or 0.0) * numel)
    if not nnz:
        raise UsageError("the mask is empty: it has no subset")
    if not 0 < size <= nnz:
        raise UsageError(
            f"a subset of density {spec.density} has {counted(size, 'coordinate')}, but the mask {nnz:,}",
            hint="give at most the density of the mask",
            options={"density": _rounded_down(nnz / numel)},
        )
    return Quota.by_class(np.array([numel - nnz, nnz]), np.array([0, size]))


def _rounded_down(share: float) -> float:
    """A share with six significant digits, and no larger."""
    places = 5 - math.floor(math.log10(share))
    return float(f"{math.floor(share * 10**places) / 10**places:.6g}")


def quota_of_tensor(spec: BaselineSpec, members: Counts, moved: Counts) -> Quota | str:
    """Quota of one tensor, from coordinates by class; or the reason why rounding alone cannot give its mask."""
    start = STARTS.get(spec.kind.name)
    if start is None:
        return Quota.by_class(members, moved)
    nnz = int(moved.sum())
    if why := why_no_scale(members, nnz):
        return why
    return Quota.of_all(members, drawing_chances(fit_scale(members, nnz, start), start), nnz)
