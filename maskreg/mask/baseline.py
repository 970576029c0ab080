"""Baselines: masks to compare a mask with, or to retrain in its place, each with a part of what makes it what it is.

This says what kinds there are, how many coordinates each wants of which class, and, once that is settled, which of a
run they are. Reading tensors run by run is for others; codes in, packed bits out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from maskreg.errors import UsageError
from maskreg.mask.draw import Draw, Quota
from maskreg.mask.packed import flip, unpack
from maskreg.mask.ranking import Smallest
from maskreg.mask.rounding import classes_of, fit_scale, flip_chances, why_no_scale
from maskreg.words import counted

DEFAULT_ALPHA = 0.5
"""Share of each matrix that the safe mask takes as principal and as small ("The Path Not Taken", arXiv 2511.08567)."""

MAX_SEED = (1 << 64) - 1

Bits = npt.NDArray[np.uint8]
Codes = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.int64]


class By(Enum):
    """What tells the classes of coordinates that are drawn."""

    NOTHING = "all are of one class"
    MEMBERSHIP = "class 1 are those of the mask, class 0 the others"
    CODE = "exponent, and whether the mantissa is 0"

    def classes(self, codes: Codes | None, packed: Bits | None, numel: int) -> npt.NDArray[np.uint16] | None:
        """Class of each coordinate of a run, uint16 ``[numel]``; None where all are of one.

        Args:
            codes: bf16 codes of the source, where these tell.
            packed: bits of the mask, where these tell.
            numel: coordinates of the run.
        """
        if self is By.CODE and codes is not None:
            return classes_of(codes)
        if self is By.MEMBERSHIP and packed is not None:
            return unpack(packed, numel).astype(np.uint16)
        return None


@dataclass(frozen=True)
class Kind:
    """A kind of baseline.

    Attributes:
        name: as recipes and the command line have it.
        says: what it is, in one line.
        seeded: whether chance decides.
        source: whether the source's values are needed.
        options: further parameters it takes: ``density``, ``rank``, ``alpha``.
        by: for those that chance decides, what tells classes.
        whole: one number for the whole model, not one for each tensor.
    """

    name: str
    says: str
    seeded: bool = False
    source: bool = False
    options: tuple[str, ...] = ()
    by: By = By.NOTHING
    whole: bool = False


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("random-global", "as many coordinates, anywhere in the model", seeded=True, whole=True),
        Kind("random-per-tensor", "as many coordinates in each tensor", seeded=True),
        Kind(
            "exponent-matched",
            "as many in each tensor of each source exponent, mantissas of 0 apart",
            seeded=True,
            source=True,
            by=By.CODE,
        ),
        Kind(
            "rounding-null",
            "as many in each tensor, as likely as bf16 rounding lets noise of one size move them",
            seeded=True,
            source=True,
            by=By.CODE,
        ),
        Kind("low-magnitude", "as many in each tensor, the smallest of the source", source=True),
        Kind(
            "principal",
            "as many in each matrix, the largest of the source's part of low rank",
            source=True,
            options=("rank",),
        ),
        Kind(
            "safe",
            "what is not principal or is small, at alpha; the density is its own",
            source=True,
            options=("rank", "alpha"),
        ),
        Kind(
            "subset",
            "some of the mask's own coordinates, down to a density",
            seeded=True,
            options=("density",),
            by=By.MEMBERSHIP,
            whole=True,
        ),
        Kind("complement", "all coordinates but the mask's"),
    )
}
"""Every kind, by name."""


@dataclass(frozen=True)
class Recipe:
    """Which baseline, with every parameter that decides its bits.

    Attributes:
        kind: which kind.
        seed: 64 bits; None where chance decides nothing.
        density: of a subset.
        rank: of the principal part; None for a tenth of each matrix's shorter side.
        alpha: of a safe mask.
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
    ) -> Recipe:
        """A recipe with its defaults filled in.

        Raises:
            UsageError: there is no such kind, or a parameter is missing, out of range or not for this kind.
        """
        if kind not in KINDS:
            raise UsageError(f"there is no baseline {kind!r}", hint=f"one of: {', '.join(KINDS)}")
        found = KINDS[kind]
        for name, value in (("density", density), ("rank", rank), ("alpha", alpha)):
            if value is not None and name not in found.options:
                raise UsageError(f"{kind} takes no {name}", hint=f"leave --{name} out")
        if seed is not None and not found.seeded:
            raise UsageError(f"{kind} takes no seed: nothing of it is left to chance", hint="leave --seed out")
        if "density" in found.options and density is None:
            raise UsageError(f"{kind} needs a density", hint="add --density, such as --density 0.1")
        if "alpha" in found.options and alpha is None:
            alpha = DEFAULT_ALPHA
        seed = (seed or 0) if found.seeded else None
        _check_numbers(seed, density, rank, alpha)
        return cls(found, seed, density, rank, alpha)

    def to_json(self) -> dict[str, Any]:
        """What a manifest says of it; parameters that do not apply are left out."""
        fields = {"seed": self.seed, "density": self.density, "rank": self.rank, "alpha": self.alpha}
        return {"kind": self.kind.name, **{name: value for name, value in fields.items() if value is not None}}


def _check_numbers(seed: int | None, density: float | None, rank: int | None, alpha: float | None) -> None:
    if seed is not None and not 0 <= seed <= MAX_SEED:
        raise UsageError(f"seed {seed} is not a number of 64 bits", hint="a number from 0 to 2^64 - 1")
    for name, share in (("density", density), ("alpha", alpha)):
        if share is not None and not 0 <= share <= 1:
            raise UsageError(f"{name} {share} is no share of a whole", hint="a number from 0 to 1")
    if density == 0:
        raise UsageError("a subset of density 0 is empty", hint="a density above 0")
    if alpha in (0, 1):
        raise UsageError(f"at alpha {alpha:g} every coordinate is safe", hint="an alpha above 0 and below 1")
    if rank is not None and rank < 1:
        raise UsageError(f"rank {rank} leaves nothing", hint="a rank of at least 1")


class Choice(Protocol):
    """Which coordinates of a tensor belong to a baseline."""

    def __call__(self, first: int, numel: int, codes: Codes | None, packed: Bits | None) -> Bits:
        """Packed bits of a run.

        Args:
            first: its first coordinate, a multiple of 4,096.
            numel: how many it has.
            codes: bf16 codes of the source, for kinds that need it.
            packed: bits of the mask.
        """


class Drawn(NamedTuple):
    """A settled draw.

    Attributes:
        draw: borders below which coordinates are drawn.
        tensor: 64 bits that stand for the tensor.
        completed: int64, in order: coordinates of the windows that are drawn too.
        by: what tells classes.
    """

    draw: Draw
    tensor: int
    completed: Counts
    by: By

    def __call__(self, first: int, numel: int, codes: Codes | None, packed: Bits | None) -> Bits:
        """Packed bits of a run."""
        classes = self.by.classes(codes, packed, numel)
        return self.draw.packed(self.tensor, first, numel, self.completed, classes)


class Small(NamedTuple):
    """The smallest magnitudes."""

    which: Smallest

    def __call__(self, first: int, numel: int, codes: Codes | None, packed: Bits | None) -> Bits:
        """Packed bits of a run."""
        return self.which.packed(first, np.empty(0, np.uint16) if codes is None else codes)


class Kept(NamedTuple):
    """Bits of the whole tensor, worked out before."""

    bits: Bits

    def __call__(self, first: int, numel: int, codes: Codes | None, packed: Bits | None) -> Bits:
        """Packed bits of a run."""
        return self.bits[first // 8 : first // 8 + -(-numel // 64) * 8]


class Safe(NamedTuple):
    """What is not principal, and what is small: ``~principal | small``."""

    principal: Kept
    small: Small

    def __call__(self, first: int, numel: int, codes: Codes | None, packed: Bits | None) -> Bits:
        """Packed bits of a run."""
        others = flip(self.principal(first, numel, codes, packed), numel)
        return others | self.small(first, numel, codes, packed)


def same(first: int, numel: int, codes: Codes | None, packed: Bits | None) -> Bits:
    """The mask's own bits: a :class:`Choice` for tensors that are taken as they are."""
    return np.empty(0, np.uint8) if packed is None else packed


def others(first: int, numel: int, codes: Codes | None, packed: Bits | None) -> Bits:
    """All bits but the mask's: a :class:`Choice`."""
    return np.empty(0, np.uint8) if packed is None else flip(packed, numel)


def quota_of_model(recipe: Recipe, numel: int, nnz: int) -> Quota:
    """What a kind with one number for the whole model wants.

    Args:
        recipe: of such a kind.
        numel: coordinates of the model.
        nnz: of the mask.

    Raises:
        UsageError: a subset would be larger than the mask.
    """
    if recipe.kind.by is By.NOTHING:
        return Quota.of_all(np.array([numel]), np.ones(1), nnz)
    wanted = round((recipe.density or 0.0) * numel)
    if not nnz:
        raise UsageError("the mask is empty: there is no subset of it")
    if not 0 < wanted <= nnz:
        raise UsageError(
            f"a subset of density {recipe.density} has {counted(wanted, 'coordinate')}, and the mask {nnz:,}",
            hint=f"--density up to {_cut(nnz / numel)}",
        )
    return Quota.by_class(np.array([numel - nnz, nnz]), np.array([0, wanted]))


def _cut(share: float) -> float:
    """A share with six significant digits, and no larger."""
    places = 5 - math.floor(math.log10(share))
    return float(f"{math.floor(share * 10**places) / 10**places:.6g}")


def quota_of_tensor(recipe: Recipe, members: Counts, moved: Counts) -> Quota | str:
    """What a kind with a number for each tensor wants of one; or why rounding alone cannot give the mask.

    Args:
        recipe: of such a kind.
        members: int64 ``[classes]``, coordinates by class.
        moved: int64 ``[classes]``, those of the mask.
    """
    if recipe.kind.name != "rounding-null":
        return Quota.by_class(members, moved)
    nnz = int(moved.sum())
    if why := why_no_scale(members, nnz):
        return why
    return Quota.of_all(members, flip_chances(fit_scale(members, nnz)), nnz)
