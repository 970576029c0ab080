"""How the tensors of two checkpoints pair up, what the artifact stores of each pair, and how large that gets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from maskreg.checkpoint import role_of
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.renaming import same_values
from maskreg.digest import FINGERPRINT_BYTES, LEAF_NUMEL
from maskreg.errors import PairMismatchError
from maskreg.flow.extract.causes import Why, refuse_other_kinds, why_different
from maskreg.tensors.info import FLOAT, HALF, WIDE, TensorInfo
from maskreg.words import counted, listed

NAMED_AT_MOST = 10
"""Tensors that a message lists by name."""

CODED_BYTES_PER_COORDINATE = 0.5
"""Size of a delta of a dense update; sparser updates take less, unrelated checkpoints take more."""


class StoredAs(Enum):
    """What an artifact stores of a pair."""

    DELTA = "mask and delta between stored 16-bit values of one dtype"
    CAST = "mask and delta; a wider target was cast to bf16 first"
    WIDE = "mask of the bf16 casts; the target's bytes whole when any bit differs"
    OPAQUE = "no mask; the target's bytes whole when any bit differs"
    WHOLE = "no mask; the target's bytes whole, since shape or dtype changed, or the source lacks it"
    REMOVED = "nothing: the target lacks it"

    @property
    def masked(self) -> bool:
        """Whether its coordinates are compared."""
        return self in (StoredAs.DELTA, StoredAs.CAST, StoredAs.WIDE)

    @property
    def coded(self) -> bool:
        """Whether the delta codec holds its values."""
        return self in (StoredAs.DELTA, StoredAs.CAST)


@dataclass(frozen=True)
class Pair:
    """One tensor of the source, the target or both.

    Attributes:
        name: the same on both sides.
        stored_as: what the artifact stores of it.
        source: as stored, None when the target added it.
        target: as stored, None when the target lacks it.
        aliases: other names of the same content on both sides.
    """

    name: str
    stored_as: StoredAs
    source: TensorInfo | None
    target: TensorInfo | None
    aliases: tuple[str, ...] = ()

    @property
    def recorded_target(self) -> TensorInfo | None:
        """The target as the artifact records it: bf16 when it was cast."""
        if self.stored_as is StoredAs.CAST and self.target is not None:
            return replace(self.target, dtype="BF16")
        return self.target

    @property
    def numel(self) -> int:
        """Elements of the longer side."""
        return max(side.numel for side in (self.source, self.target) if side is not None)


class _Mismatch(NamedTuple):
    name: str
    why: str


def pair_up(
    source: Checkpoint, target: Checkpoint, *, mask_only: bool, allow_mismatch: bool
) -> tuple[tuple[Pair, ...], tuple[str, ...]]:
    """Decide for every tensor of both checkpoints what the artifact stores of it.

    Args:
        source: read from only to find tied weights.
        target: likewise.
        mask_only: store no values; then the source can be wider than 16 bits.
        allow_mismatch: store whole what does not pair up, instead of refusing.

    Returns:
        Pairs in the order of the source, then added tensors in the order of the target; and notes, one sentence each.
    """
    refuse_other_kinds(source, target)
    if not mask_only:
        _refuse_wide_source(source)
    pairs: list[Pair] = []
    mismatches: list[_Mismatch] = []
    added = [name for name in target.tensors if name not in source.tensors]
    for name in (*source.tensors, *added):
        before, after = source.tensors.get(name), target.tensors.get(name)
        stored_as, why = _stored_as(before, after, mask_only=mask_only)
        pairs.append(Pair(name, stored_as, before, after))
        if why:
            mismatches.append(_Mismatch(name, why))
    if mismatches and not allow_mismatch:
        raise _mismatch_error(mismatches, why_different(source, target))
    notes = []
    if mismatches:
        kept = "listed" if mask_only else "stored whole or listed"
        notes.append(f"{_do_not_pair_up(mismatches)} ({kept})")
    cast = sorted({p.target.dtype for p in pairs if p.stored_as is StoredAs.CAST and p.target is not None})
    if cast:
        notes.append(f"target: bf16 cast of an {' and '.join(cast)} checkpoint")
        notes.append(
            "below bf16 precision nearly every weight of such a checkpoint differs; that is neither in the mask nor in "
            "the delta"
        )
    return tuple(_fold_tied(pairs, source, target)), tuple(notes)


def estimated_bytes(pairs: Iterable[Pair], *, mask_only: bool, reversible: bool) -> int:
    """Bytes that an artifact of these pairs will take; too many rather than too few."""
    directions = 0 if mask_only else 1 + reversible
    total = 0.0
    for pair in pairs:
        total += 2 * FINGERPRINT_BYTES * (pair.numel / LEAF_NUMEL + 1)
        if pair.stored_as.masked:
            total += pair.numel / 8
        if pair.stored_as.coded:
            total += pair.numel * CODED_BYTES_PER_COORDINATE * directions
        elif not mask_only:
            total += pair.target.nbytes if pair.target and pair.stored_as is not StoredAs.REMOVED else 0
            total += pair.source.nbytes if pair.source and reversible else 0
    return int(total)


def _stored_as(before: TensorInfo | None, after: TensorInfo | None, *, mask_only: bool) -> tuple[StoredAs, str]:
    if before is None:
        return StoredAs.WHOLE, "only in the target"
    if after is None:
        return StoredAs.REMOVED, "only in the source"
    if before.shape != after.shape:
        return StoredAs.WHOLE, f"shape {list(before.shape)} -> {list(after.shape)}"
    if before.dtype == after.dtype:
        half = StoredAs.DELTA if before.dtype in HALF else StoredAs.OPAQUE
        return StoredAs.WIDE if before.dtype in WIDE else half, ""
    if before.dtype == "BF16" and after.dtype in WIDE:
        return StoredAs.CAST, ""
    if {before.dtype, after.dtype} <= FLOAT and (before.dtype in WIDE or (mask_only and after.dtype in WIDE)):
        return StoredAs.WIDE, ""
    return StoredAs.WHOLE, f"dtype {before.dtype} -> {after.dtype}"


def is_wide(source: Checkpoint) -> bool:
    """Whether a source is stored in 32 bits or more only, so that it allows masks but no deltas."""
    dtypes = {t.dtype for t in source.tensors.values()}
    return bool(dtypes & WIDE) and not dtypes & HALF


def _refuse_wide_source(source: Checkpoint) -> None:
    if is_wide(source):
        wide = tuple(t.name for t in source.tensors.values() if t.dtype in WIDE)
        raise PairMismatchError(
            f"the source is stored in {source.tensors[wide[0]].dtype}: bits below bf16 precision differ nearly "
            "everywhere, so a delta would be as large as the checkpoint; only its bf16 mask is useful",
            wide,
            hint="add --mask-only, or extract from the bf16 checkpoint that training started from",
        )


def _do_not_pair_up(mismatches: Sequence[_Mismatch]) -> str:
    number = len(mismatches)
    each = [f"{m.name} ({m.why})" for m in mismatches]
    return f"{counted(number, 'tensor', 'does')} not pair up: {listed(each, NAMED_AT_MOST, separator='; ')}"


def _mismatch_error(mismatches: Sequence[_Mismatch], why: Why | None) -> PairMismatchError:
    names = tuple(m.name for m in mismatches)
    if why is None:
        hint = "add --allow-mismatch to store them whole"
        return PairMismatchError(_do_not_pair_up(mismatches), names, hint=hint)
    rest = [m for m in mismatches if m.name not in why.tensors]
    besides = f". Besides, {_do_not_pair_up(rest)}" if rest else ""
    return PairMismatchError(why.fault + besides, names, hint=why.hint)


def _fold_tied(pairs: list[Pair], source: Checkpoint, target: Checkpoint) -> Iterator[Pair]:
    """Turn an output head that equals the embedding on both sides into an alias of it."""
    by_role: dict[str, list[Pair]] = {"embedding": [], "lm_head": []}
    for pair in pairs:
        if pair.stored_as.masked:
            by_role.get(role_of(pair.name), []).append(pair)
    alias_of: dict[str, str] = {}
    for head in by_role["lm_head"]:
        for owner in by_role["embedding"]:
            if _same_kind(owner, head) and all(same_values(c, owner.name, head.name) for c in (source, target)):
                alias_of[head.name] = owner.name
                break
    for pair in pairs:
        if pair.name not in alias_of:
            aliases = tuple(alias for alias, owner in alias_of.items() if owner == pair.name)
            yield replace(pair, aliases=aliases) if aliases else pair


def _same_kind(left: Pair, right: Pair) -> bool:
    return (left.stored_as, _form(left.source), _form(left.target)) == (
        right.stored_as,
        _form(right.source),
        _form(right.target),
    )


def _form(tensor: TensorInfo | None) -> tuple[str, tuple[int, ...]] | None:
    return None if tensor is None else (tensor.dtype, tensor.shape)
