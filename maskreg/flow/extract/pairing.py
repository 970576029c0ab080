"""How the tensors of two checkpoints pair up, what an artifact stores of each pair, and why two do not fit together."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from itertools import takewhile
from typing import Any, NamedTuple

from maskreg.bucket import Location
from maskreg.checkpoint import role_of
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.renaming import dialect_of, same_values
from maskreg.digest import FINGERPRINT_BYTES, LEAF_NUMEL
from maskreg.document import parse_object
from maskreg.errors import DataError, PairMismatchError
from maskreg.limits import LIMITS
from maskreg.tensors.info import FLOAT, HALF, WIDE, TensorInfo, shown
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
    """One tensor of the source, the target or both, as stored; aliases are names of the same content on both sides."""

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


def pair_up(
    source: Checkpoint, target: Checkpoint, *, mask_only: bool, allow_mismatch: bool
) -> tuple[tuple[Pair, ...], tuple[str, ...]]:
    """Decide for every tensor of both checkpoints what the artifact stores of it; data is read to find tied weights.

    Returns pairs in the order of the source, then added tensors in the order of the target; and notes.
    """
    pairs, notes = paired(source, target, mask_only=mask_only, allow_mismatch=allow_mismatch)
    return fold_tied(pairs, lambda *names: all(same_values(each, *names) for each in (source, target))), notes


def paired(
    source: Checkpoint, target: Checkpoint, *, mask_only: bool, allow_mismatch: bool
) -> tuple[tuple[Pair, ...], tuple[str, ...]]:
    """The same by names, dtypes and shapes alone, so that tied weights are pairs of their own."""
    _refuse_other_kinds(source, target)
    if not mask_only and is_wide(source):
        wide = tuple(t.name for t in source.tensors.values() if t.dtype in WIDE)
        raise PairMismatchError(
            f"the source is stored in {source.tensors[wide[0]].dtype}: bits below bf16 precision differ nearly "
            "everywhere, so a delta would be as large as the checkpoint; only its bf16 mask is useful",
            wide,
            hint="extract from the bf16 checkpoint that training started from, or the mask alone",
            options={"mask_only": True, "reversible": False},
        )
    pairs: list[Pair] = []
    mismatches: dict[str, str] = {}
    added = [name for name in target.tensors if name not in source.tensors]
    for name in (*source.tensors, *added):
        before, after = source.tensors.get(name), target.tensors.get(name)
        stored_as, why = _stored_as(before, after, mask_only=mask_only)
        pairs.append(Pair(name, stored_as, before, after))
        if why:
            mismatches[name] = why
    if mismatches and not allow_mismatch:
        causes = (explain(source, target) for explain in (_foreign, _renamed, _half, _unrelated))
        raise _mismatch_error(mismatches, next((why for why in causes if why), None))
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
    return tuple(pairs), tuple(notes)


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


def _do_not_pair_up(mismatches: Mapping[str, str]) -> str:
    each = [f"{name} ({why})" for name, why in mismatches.items()]
    return f"{counted(len(each), 'tensor', 'does')} not pair up: {listed(each, NAMED_AT_MOST, separator='; ')}"


def _mismatch_error(mismatches: Mapping[str, str], why: _Why | None) -> PairMismatchError:
    names = tuple(mismatches)
    if why is None:
        return PairMismatchError(_do_not_pair_up(mismatches), names, hint="store them whole", **_WHOLE)
    rest = {name: reason for name, reason in mismatches.items() if name not in why.tensors}
    besides = f". Besides, {_do_not_pair_up(rest)}" if rest else ""
    return PairMismatchError(why.fault + besides, names, hint=why.hint, **why.facts)


def fold_tied(pairs: Sequence[Pair], same: Callable[[str, str], bool]) -> tuple[Pair, ...]:
    """Turn an output head into an alias of an embedding where ``same``: they are equal on both sides."""
    by_role: dict[str, list[Pair]] = {"embedding": [], "lm_head": []}
    for pair in pairs:
        if pair.stored_as.masked:
            by_role.get(role_of(pair.name), []).append(pair)
    alias_of: dict[str, str] = {}
    for head in by_role["lm_head"]:
        for owner in by_role["embedding"]:
            if _form(owner) == _form(head) and same(owner.name, head.name):
                alias_of[head.name] = owner.name
                break
    aliases = {pair.name: tuple(alias for alias, owner in alias_of.items() if owner == pair.name) for pair in pairs}
    return tuple(
        replace(pair, aliases=aliases[pair.name]) if aliases[pair.name] else pair
        for pair in pairs
        if pair.name not in alias_of
    )


def _form(pair: Pair) -> list[object]:
    return [pair.stored_as, *((side.dtype, side.shape) if side else None for side in (pair.source, pair.target))]


# Causes: what a checkpoint can be instead, and how two can differ as a whole.

_ADAPTER = re.compile(
    r"(.*\.)?(lora_(A|B|embedding_A|embedding_B|magnitude_vector)|lokr_w\w+|hada_[wt]\w+|oft_[rR]|ia3_l|"
    r"vera_lambda_[bd]|prompt_embeddings)(\..+)?"
)
_QUANTIZED = re.compile(
    r".+\.(qweight|qzeros|g_idx|weight_packed|absmax|quant_map|weight_scale_inv|quant_state\..+|SCB|weight_format)"
)


_MERGE = (
    'python -c "from peft import AutoPeftModelForCausalLM as M; import sys; '
    "M.from_pretrained(sys.argv[1], dtype='auto').merge_and_unload().save_pretrained(sys.argv[2])\" {} {}"
)


class _Why(NamedTuple):
    """One cause for which many tensors do not pair up, and their names on both sides."""

    fault: str
    hint: str
    tensors: frozenset[str]
    facts: Mapping[str, Any] = {}


_WHOLE: Mapping[str, Any] = {"options": {"allow_mismatch": True}}


def _refuse_other_kinds(source: Checkpoint, target: Checkpoint) -> None:
    """Refuse what is no state dict of 16-bit weights: an adapter beside a model, or a quantized checkpoint."""
    sides = (("source", source), ("target", target))
    for test, explain in ((_is_adapter, _adapter), (_is_quantized, _quantized)):
        tensors = [tuple(info.name for info in checkpoint.tensors.values() if test(info)) for _, checkpoint in sides]
        if test is _is_adapter and all(tensors):
            # Two adapters are two state dicts like any others.
            continue
        for (side, checkpoint), names in zip(sides, tensors, strict=True):
            if names:
                fault, hint = explain(checkpoint, names)
                raise PairMismatchError(f"the {side} ({checkpoint.path}) {fault}", names, hint=hint)


def _is_adapter(tensor: TensorInfo) -> bool:
    """Whether a tensor is of a LoRA or another adapter of PEFT, on its own or beside weights that lack it."""
    return bool(_ADAPTER.fullmatch(tensor.name))


def _is_quantized(tensor: TensorInfo) -> bool:
    codes = tensor.dtype.startswith("F8_") or (tensor.dtype in ("I8", "U8") and len(tensor.shape) >= 2)
    return codes or bool(_QUANTIZED.fullmatch(tensor.name))


def _quantized(checkpoint: Checkpoint, names: Sequence[str]) -> tuple[str, str]:
    method = _config(checkpoint, "config.json").get("quantization_config")
    method = method.get("quant_method") if isinstance(method, dict) else None
    with_method = f" with {shown(method)}, as its config.json says" if isinstance(method, str) else ""
    return (
        f"is quantized{with_method}: {counted(len(names), 'tensor')} such as {names[0]} "
        f"({checkpoint.tensors[names[0]].dtype}); codes and scales both change, so a mask of codes would say nothing "
        "about weights"
    ), "extract from the 16-bit checkpoints that were quantized"


def _adapter(checkpoint: Checkpoint, names: Sequence[str]) -> tuple[str, str]:
    base = _config(checkpoint, "adapter_config.json").get("base_model_name_or_path")
    of_base = f" of {shown(base)}" if isinstance(base, str) and base else ""
    fault = (
        f"is an adapter{of_base}, not a whole model: {counted(len(names), 'tensor')} such as {names[0]}; "
        "it must be merged into its base model first"
    )
    if not _config(checkpoint, "adapter_config.json"):
        return fault, "merge it with merge_and_unload of the package peft, and save the result"
    folder = _folder(checkpoint)
    return fault, _MERGE.format(shlex.quote(str(folder)), shlex.quote(f"{folder.absolute()}-merged"))


def _folder(checkpoint: Checkpoint) -> Location:
    return checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent


def _config(checkpoint: Checkpoint, name: str) -> Mapping[str, Any]:
    # Only for words in a message, which can do without: a config that is absent or wrong is not what is at fault.
    with suppress(OSError, DataError):
        path = _folder(checkpoint) / name
        if path.is_file() and path.stat().st_size <= LIMITS.small_file_bytes:
            return parse_object(path.read_bytes(), name, max_bytes=LIMITS.small_file_bytes)
    return {}


def _renamed(source: Checkpoint, target: Checkpoint) -> _Why | None:
    """Names that are equal but for how they begin.

    The prefixes are what stands in front of the longest common end of two names, one of each side::

        model.layers.0.w  and  model.language_model.layers.0.w    'model.' became 'model.language_model.'
    """
    lacking = [name for name in source.tensors if name not in target.tensors]
    surplus = {name for name in target.tensors if name not in source.tensors}
    # A single name can be on one side alone, such as an output head that is tied.
    for sample in dict.fromkeys(lacking[at] for at in (0, len(lacking) // 2, -1) if lacking and surplus):
        likest = max(surplus, key=lambda name: (_common_end(sample, name), -len(name), name))
        before, after = _prefixes(sample, likest)
        pairs = [(name, after + name[len(before) :]) for name in lacking if name.startswith(before)]
        pairs = [pair for pair in pairs if pair[1] in surplus]
        if before != after and len(pairs) == min(len(lacking), len(surplus)):
            return _renaming(before, after, pairs, len(source.tensors))
    return None


def _renaming(before: str, after: str, pairs: Sequence[tuple[str, str]], number: int) -> _Why:
    first, second = pairs[0]
    return _Why(
        f"the target has other names than the source: {_change(before, after)} in {len(pairs):,} of "
        f"{counted(number, 'tensor')}: {first} is {second}",
        "save both checkpoints from one model class, such as AutoModelForCausalLM",
        frozenset(name for pair in pairs for name in pair),
    )


def _change(before: str, after: str) -> str:
    if not before or not after:
        return f"'{before or after}' was {'removed' if before else 'added'} at the front"
    return f"'{before}' at the front became '{after}'"


def _common_end(left: str, right: str) -> int:
    ends = zip(left.split(".")[::-1], right.split(".")[::-1], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ends))


def _prefixes(left: str, right: str) -> tuple[str, str]:
    common = _common_end(left, right)
    before, after = ("".join(f"{word}." for word in reversed(name.split(".")[::-1][common:])) for name in (left, right))
    return before, after


def _half(source: Checkpoint, target: Checkpoint) -> _Why | None:
    both = [(info, target.tensors[name]) for name, info in source.tensors.items() if name in target.tensors]
    changed = [(a, b) for a, b in both if a.dtype != b.dtype and a.shape == b.shape]
    dtypes = {(a.dtype, b.dtype) for a, b in changed}
    if len(dtypes) != 1 or 2 * len(changed) <= len(both) or not {dtype for pair in dtypes for dtype in pair} <= FLOAT:
        return None
    before, after = next(iter(dtypes))
    save = {"BF16": "bfloat16", "F16": "float16"}.get(before)
    step = f"save the target in {before}: model.to(torch.{save}).save_pretrained(...); or " if save else ""
    return _Why(
        f"the target is stored in {after} and the source in {before}: {len(changed):,} of "
        f"{counted(len(source.tensors), 'tensor')} such as {changed[0][0].name}; bits of two dtypes cannot be compared",
        f"{step}store its tensors whole",
        frozenset(info.name for info, _ in changed),
        _WHOLE,
    )


def _foreign(source: Checkpoint, target: Checkpoint) -> _Why | None:
    for side, mine, others in (("source", source, target), ("target", target, source)):
        if found := dialect_of(mine.tensors, others.tensors):
            dialect, sample = found
            odd = mine.tensors.keys() ^ others.tensors.keys()
            return _Why(f"the {side} has {dialect.names}, such as {sample}", dialect.saved, frozenset(odd))
    return None


def _unrelated(source: Checkpoint, target: Checkpoint) -> _Why | None:
    if source.tensors.keys() & target.tensors.keys() or not source.tensors or not target.tensors:
        return None
    first, second = next(iter(source.tensors)), next(iter(target.tensors))
    return _Why(
        f"source and target share no tensor name: {counted(len(source.tensors), 'tensor')} such as {first}, and "
        f"{counted(len(target.tensors), 'tensor')} such as {second}; they look like two different models",
        "name the checkpoint that training started from, and the one that it ended with",
        frozenset([*source.tensors, *target.tensors]),
    )
