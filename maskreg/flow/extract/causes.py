"""Why two checkpoints do not fit together: tables of what a checkpoint can be instead, and of how two can differ."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from maskreg.bucket import Location
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.layouts import MERGE, is_adapter
from maskreg.checkpoint.renaming import dialect_of
from maskreg.document import parse_object
from maskreg.errors import DataError, PairMismatchError
from maskreg.limits import LIMITS
from maskreg.tensors.info import FLOAT, TensorInfo, shown
from maskreg.words import counted

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


class Kind(NamedTuple):
    """A kind of checkpoint that is no state dict of 16-bit weights.

    Attributes:
        name: of the kind.
        test: whether a tensor gives it away.
        fault: what the checkpoint is, given the names of such tensors; continues ``the target ``.
        hint: the next step.
    """

    name: str
    test: Callable[[TensorInfo], bool]
    fault: Callable[[Checkpoint, Sequence[str]], str]
    hint: Callable[[Checkpoint], str]


class Why(NamedTuple):
    """One cause for which many tensors do not pair up.

    Attributes:
        fault: the cause.
        hint: the next step.
        tensors: names that it explains, of both sides.
    """

    fault: str
    hint: str
    tensors: frozenset[str]


class Difference(NamedTuple):
    """A way in which two checkpoints differ as a whole.

    Attributes:
        name: of the difference.
        explain: the cause, where two checkpoints differ in this way; None where they do not.
    """

    name: str
    explain: Callable[[Checkpoint, Checkpoint], Why | None]


def refuse_other_kinds(source: Checkpoint, target: Checkpoint) -> None:
    """Refuse a checkpoint of one of the :data:`KINDS`."""
    for kind in KINDS:
        tensors = {
            side: tuple(info.name for info in checkpoint.tensors.values() if kind.test(info))
            for side, checkpoint in (("source", source), ("target", target))
        }
        if kind is ADAPTER and all(tensors.values()):
            # Two adapters are two state dicts like any others.
            continue
        for side, names in tensors.items():
            if names:
                checkpoint = source if side == "source" else target
                fault = f"the {side} ({checkpoint.path}) {kind.fault(checkpoint, names)}"
                raise PairMismatchError(fault, names, hint=kind.hint(checkpoint))


def why_different(source: Checkpoint, target: Checkpoint) -> Why | None:
    """The one cause of many tensors that do not pair up; None where no cause explains them."""
    return next((why for known in DIFFERENCES if (why := known.explain(source, target))), None)


def _is_quantized(tensor: TensorInfo) -> bool:
    codes = tensor.dtype.startswith("F8_") or (tensor.dtype in ("I8", "U8") and len(tensor.shape) >= 2)
    return codes or bool(_QUANTIZED.fullmatch(tensor.name))


def _quantized(checkpoint: Checkpoint, names: Sequence[str]) -> str:
    method = _config(checkpoint, "config.json").get("quantization_config")
    method = method.get("quant_method") if isinstance(method, dict) else None
    with_method = f" with {shown(method)}, as its config.json says" if isinstance(method, str) else ""
    return (
        f"is quantized{with_method}: {counted(len(names), 'tensor')} such as {names[0]} "
        f"({checkpoint.tensors[names[0]].dtype}); codes and scales both change, so a mask of codes would say nothing "
        "about weights"
    )


def _adapter(checkpoint: Checkpoint, names: Sequence[str]) -> str:
    base = _config(checkpoint, "adapter_config.json").get("base_model_name_or_path")
    of_base = f" of {shown(base)}" if isinstance(base, str) and base else ""
    return (
        f"is an adapter{of_base}, not a whole model: {counted(len(names), 'tensor')} such as {names[0]}; "
        "it must be merged into its base model first"
    )


def _merge(checkpoint: Checkpoint) -> str:
    folder = _folder(checkpoint)
    if is_adapter(folder):
        return f"name its folder, which is read as the merged model: {shlex.quote(str(folder))}"
    if not _config(checkpoint, "adapter_config.json"):
        return MERGE
    return _MERGE.format(shlex.quote(str(folder)), shlex.quote(f"{folder.absolute()}-merged"))


def _folder(checkpoint: Checkpoint) -> Location:
    return checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent


def _config(checkpoint: Checkpoint, name: str) -> Mapping[str, Any]:
    # Only for words in a message, which can do without: a config that is absent or wrong is not what is at fault.
    with suppress(OSError, DataError):
        path = _folder(checkpoint) / name
        if path.is_file() and path.stat().st_size <= LIMITS.small_file_bytes:
            return parse_object(path.read_bytes(), name, max_bytes=LIMITS.small_file_bytes)
    return {}


def _renamed(source: Checkpoint, target: Checkpoint) -> Why | None:
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


def _renaming(before: str, after: str, pairs: Sequence[tuple[str, str]], number: int) -> Why:
    first, second = pairs[0]
    return Why(
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
    count = 0
    for a, b in zip(reversed(left.split(".")), reversed(right.split(".")), strict=False):
        if a != b:
            break
        count += 1
    return count


def _prefixes(left: str, right: str) -> tuple[str, str]:
    common = _common_end(left, right)
    heads = (name.split(".")[: len(name.split(".")) - common] for name in (left, right))
    before, after = ("".join(f"{word}." for word in words) for words in heads)
    return before, after


def _half(source: Checkpoint, target: Checkpoint) -> Why | None:
    both = [(info, target.tensors[name]) for name, info in source.tensors.items() if name in target.tensors]
    changed = [(a, b) for a, b in both if a.dtype != b.dtype and a.shape == b.shape]
    dtypes = {(a.dtype, b.dtype) for a, b in changed}
    if len(dtypes) != 1 or 2 * len(changed) <= len(both) or not {dtype for pair in dtypes for dtype in pair} <= FLOAT:
        return None
    before, after = next(iter(dtypes))
    save = {"BF16": "bfloat16", "F16": "float16"}.get(before)
    step = f"save the target in {before}: model.to(torch.{save}).save_pretrained(...); or " if save else ""
    return Why(
        f"the target is stored in {after} and the source in {before}: {len(changed):,} of "
        f"{counted(len(source.tensors), 'tensor')} such as {changed[0][0].name}; bits of two dtypes cannot be compared",
        f"{step}add --allow-mismatch to store its tensors whole",
        frozenset(info.name for info, _ in changed),
    )


def _foreign(source: Checkpoint, target: Checkpoint) -> Why | None:
    for side, mine, others in (("source", source, target), ("target", target, source)):
        if found := dialect_of(mine.tensors, others.tensors):
            dialect, sample = found
            odd = mine.tensors.keys() ^ others.tensors.keys()
            return Why(f"the {side} has {dialect.names}, such as {sample}", dialect.saved, frozenset(odd))
    return None


def _unrelated(source: Checkpoint, target: Checkpoint) -> Why | None:
    if source.tensors.keys() & target.tensors.keys() or not source.tensors or not target.tensors:
        return None
    first, second = next(iter(source.tensors)), next(iter(target.tensors))
    return Why(
        f"source and target share no tensor name: {counted(len(source.tensors), 'tensor')} such as {first}, and "
        f"{counted(len(target.tensors), 'tensor')} such as {second}; they look like two different models",
        "name the checkpoint that training started from, and the one that it ended with",
        frozenset([*source.tensors, *target.tensors]),
    )


ADAPTER = Kind("adapter", lambda info: bool(_ADAPTER.fullmatch(info.name)), _adapter, _merge)
"""A LoRA or another adapter of PEFT, on its own or beside weights that it was not merged into."""

KINDS = (
    ADAPTER,
    Kind(
        "quantized",
        _is_quantized,
        _quantized,
        lambda checkpoint: "extract from the 16-bit checkpoints that were quantized",
    ),
)
"""Kinds of checkpoints that cannot be compared, the first that fits."""

DIFFERENCES = (
    Difference("dialect", _foreign),
    Difference("renamed", _renamed),
    Difference("dtype", _half),
    Difference("unrelated", _unrelated),
)
"""How two checkpoints can differ as a whole, the first that fits."""
