"""LoRA adapters of PEFT, read as the model that merging them into their base model gives.

Values are computed as they are read: what ``merge_and_unload`` of peft computes, ``W + (B @ A) * scaling`` in fp32,
rounded to the base's dtype. Each value of ``B @ A`` is a sum of as many products as the rank, added one after another,
so that it does not depend on which rows are computed together: a span needs only its own rows of B.

::

    span of 3 rows and a half      rows r .. r+3 of B, padded to 16 rows  @  A  ->  4 rows of the update
                                   plus the span of the base, rounded once
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.bucket import Location
from maskreg.checkpoint import safetensors, torch_files
from maskreg.checkpoint.base import Checkpoint, Memory, Reopen
from maskreg.checkpoint.files import in_folder, read_whole, small_files
from maskreg.checkpoint.layouts import ADAPTER_CONFIG, ADAPTER_WEIGHTS, MERGE
from maskreg.document import parse_object
from maskreg.errors import DataError, FormatError, NotFoundError, PairMismatchError, UsageError, prefixed
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.cast import fp32_of, stored_bits
from maskreg.tensors.info import FLOAT, TensorInfo, shown
from maskreg.words import counted

Floats = npt.NDArray[np.float32]

# How the adapter began, or what it is used for; nothing here changes what merging gives.
_NEUTRAL = {
    "task_type", "peft_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode",
    "r", "target_modules", "exclude_modules", "lora_alpha", "lora_dropout", "fan_in_fan_out", "bias", "use_rslora",
    "modules_to_save", "init_lora_weights", "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern",
    "megatron_config", "megatron_core", "qalora_group_size", "loftq_config", "eva_config", "runtime_config",
    "ensure_weight_tying",
}  # fmt: skip
# Other ways to begin change the base model itself, which then is not the one that the configuration names.
_BEGINNINGS = (True, False, None, "gaussian", "eva", "orthogonal")
_PATTERN_LENGTH = 256
_REPETITIONS = re.compile(r"(?<!\\)[*+?{]")
_MAX_REPETITIONS = 2


@dataclass(frozen=True)
class AdapterConfig:
    """A LoRA adapter's configuration.

    Attributes:
        base: path or hub id of the model that it was trained on; empty when it says none.
        alphas: other numerators of the scaling, by a pattern of module names.
        root: divide by the square root of the rank, not by the rank.
        transposed: weights of the base are stored as inputs by outputs.
    """

    base: str
    alpha: float
    alphas: Mapping[str, float] = field(default_factory=dict)
    root: bool = False
    transposed: bool = False

    def scaling(self, module: str, rank: int) -> float:
        """The factor of ``B @ A`` for a module."""
        alpha = next((value for key, value in self.alphas.items() if _fits(key, module)), self.alpha)
        return alpha / math.sqrt(rank) if self.root else alpha / rank


def parse_config(data: bytes, limits: Limits = LIMITS) -> AdapterConfig:
    """Read ``adapter_config.json``."""
    document = parse_object(data, ADAPTER_CONFIG, max_bytes=limits.small_file_bytes)
    kind = document.get("peft_type")
    if kind != "LORA":
        raise _refused(f"an adapter of the kind {shown(kind)}; LoRA can be merged here")
    for key, value in document.items():
        # An option of a later version may change what merging means; at its default it is off.
        if key not in _NEUTRAL and value:
            raise _refused(f"an adapter with {shown(key)[1:-1]}")
    begin = document.get("init_lora_weights")
    if begin not in _BEGINNINGS:
        raise _refused(f"an adapter that began as {shown(begin)}, which changes the base model too")
    if document.get("bias", "none") != "none":
        raise _refused("an adapter that trained biases too")
    base = document.get("base_model_name_or_path")
    alphas = document.get("alpha_pattern") or {}
    if not isinstance(alphas, dict) or not isinstance(base, str | None):
        raise _refused("a malformed configuration")
    return AdapterConfig(
        base=base or "",
        alpha=_number(document.get("lora_alpha")),
        alphas={_pattern(key): _number(value) for key, value in alphas.items()},
        root=bool(document.get("use_rslora")),
        transposed=bool(document.get("fan_in_fan_out")),
    )


def _fits(pattern: str, module: str) -> bool:
    return bool(re.match(rf"(.*\.)?({pattern})$", module))


def _pattern(text: str) -> str:
    # A pattern with many repetitions could take for ever.
    if len(text) > _PATTERN_LENGTH or len(_REPETITIONS.findall(text)) > _MAX_REPETITIONS:
        raise _refused(f"the pattern {shown(text)} in alpha_pattern is too complex")
    try:
        re.compile(text)
    except re.error as error:
        raise _refused(f"the pattern {shown(text)} in alpha_pattern is malformed") from error
    return text


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _refused(f"the scaling {shown(value)} is no number")
    return float(value)


def _refused(fault: str) -> FormatError:
    return FormatError(f"{ADAPTER_CONFIG}: {fault}", hint=MERGE)


_FACTORS = 4  # factors that stay in memory: threads work on one tensor or two at a time
_ROWS = 16  # rows are computed in multiples of this: a product of a single row would be added up in another order


class LowRank(NamedTuple):
    """An update of one tensor: ``B``, outputs by rank, and ``A``, rank by inputs.

    ``transposed``: the tensor is inputs by outputs. ``rounded``: the product is rounded to the tensor's dtype before it
    is added, as peft does for embeddings.
    """

    left: TensorInfo
    right: TensorInfo
    scaling: float
    transposed: bool
    rounded: bool = False


class AdapterWeights(NamedTuple):
    """An adapter's weights: updates by the name of the base's tensor, and so the names of tensors that it holds."""

    checkpoint: Checkpoint
    updates: Mapping[str, LowRank]
    whole: Mapping[str, str]


class MergedAdapter(Checkpoint):
    """A base model with an adapter merged in."""

    format = "adapter"

    def __init__(
        self,
        path: Location,
        base: Checkpoint,
        adapter: AdapterWeights,
        remark: str,
        limits: Limits = LIMITS,
    ) -> None:
        """Take over two open checkpoints."""
        self.path, self.remarks = path, (remark,)
        self._base, self._limits = base, limits
        self._weights, self._updates, self._whole = adapter
        stored = {name: self._weights.tensors[own] for name, own in self._whole.items()}
        self.tensors: Mapping[str, TensorInfo] = {
            **base.tensors,
            **{name: TensorInfo(name, info.dtype, info.shape) for name, info in stored.items()},
        }
        self._cached_factor = lru_cache(_FACTORS)(self._whole_factor)
        self._closed = False

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor."""
        if self._closed:
            raise UsageError(f"{self.path}: the checkpoint is closed", hint="open it again")
        whole = self._whole.get(name)
        values = self._weights.read(whole, start, stop, into) if whole else self._base.read(name, start, stop, into)
        update = self._updates.get(name)
        if update is None or start == stop:
            return values
        info = self.tensors[name]
        width = info.shape[1]
        first, last = start // width, -(-stop // width)
        moved = self._rows(update, first, last).reshape(-1)[start - first * width : stop - first * width]
        with np.errstate(over="ignore", invalid="ignore"):  # beyond the range is infinity
            if update.rounded:
                moved = fp32_of(stored_bits(moved, info.dtype), info.dtype)
            return stored_bits(fp32_of(values, info.dtype) + moved, info.dtype)

    def expect(self, name: str, start: int, stop: int) -> int:
        """Announce it to the checkpoint that holds it."""
        whole = self._whole.get(name)
        return self._weights.expect(whole, start, stop) if whole else self._base.expect(name, start, stop)

    def small_files(self) -> Mapping[str, Location]:
        """The base's, and the adapter's in their place; not the adapter's configuration."""
        own = small_files(self.path, self._limits)
        return {**self._base.small_files(), **{name: path for name, path in own.items() if name != ADAPTER_CONFIG}}

    def locations(self) -> tuple[Location, ...]:
        """Of the adapter and of its base model."""
        return (self.path, *self._base.locations())

    def close(self) -> None:
        """Close both checkpoints."""
        self._closed = True
        self._weights.close()
        self._base.close()

    def _rows(self, update: LowRank, first: int, last: int) -> Floats:
        """Rows ``[first, last)`` of an update, fp32."""
        rank = update.right.shape[0]
        count = last - first
        padded = np.zeros((-(-count // _ROWS) * _ROWS, rank), np.float32)
        if update.transposed:
            # Rows of the tensor are columns of A.
            width = update.right.shape[1]
            for row in range(rank):
                padded[:count, row] = self._factor(update.right, row * width + first, row * width + last)
            left = self._cached_factor(update.left.name).reshape(update.left.shape)
            product = (left @ padded.T).T
        else:
            padded[:count] = self._factor(update.left, first * rank, last * rank).reshape(count, rank)
            product = padded @ self._cached_factor(update.right.name).reshape(update.right.shape)
        return product[:count] * np.float32(update.scaling)

    def _factor(self, info: TensorInfo, start: int, stop: int) -> Floats:
        return fp32_of(self._weights.read(info.name, start, stop), info.dtype)

    def _whole_factor(self, name: str) -> Floats:
        info = self._weights.tensors[name]
        return self._factor(info, 0, info.numel)


_FACTOR = re.compile(r"(?P<module>.+)\.lora_(?P<kind>embedding_)?(?P<factor>[AB])(\.default)?(\.weight)?")
_OTHER_PART = re.compile(r".*\.(lora_|modules_to_save|base_layer|token_adapter|trainable_tokens).*")
_FRONT = "base_model.model."


class _Factors(NamedTuple):
    module: str
    embedding: bool
    names: dict[str, str]


def open_path(path: Location, *, hub: str = "", limits: Limits = LIMITS, reopen: Reopen) -> MergedAdapter:
    """Open an adapter and its base model."""
    data = read_whole(path / ADAPTER_CONFIG, limits.small_file_bytes)
    with in_folder(path):
        config = parse_config(data, limits)
    file = next(path / name for name in ADAPTER_WEIGHTS if (path / name).exists())
    with ExitStack() as stack:
        reader: Any = safetensors if file.suffix == ".safetensors" else torch_files
        weights: Checkpoint = stack.enter_context(reader.open_path(file, limits=limits))
        base = stack.enter_context(_open_base(path, config, reopen))
        with in_folder(path):
            factors, whole = _sorted(weights, file.name)
            # Beside the factors of an embedding, peft saves the embedding itself.
            before = {**base.tensors, **{name: weights.tensors[stored] for name, stored in whole.items()}}
        with prefixed(f"{path}: ", DataError):
            low_rank = {name: _low_rank(config, weights, before.get(name), entry) for name, entry in factors.items()}
        stack.pop_all()
    remark = f"{counted(len(low_rank), 'tensor')} with a LoRA adapter merged in, on {base.path}"
    return MergedAdapter(path, base, AdapterWeights(weights, low_rank, whole), remark, limits)


def _open_base(path: Location, config: AdapterConfig, reopen: Reopen) -> Checkpoint:
    try:
        return reopen(config.base)
    except NotFoundError as error:
        raise NotFoundError(
            f"{path}: the base model of this adapter ({shown(config.base)}) is not here: {error.message}",
            hint=f"write its path into base_model_name_or_path in {path / ADAPTER_CONFIG}",
        ) from error


def _sorted(weights: Checkpoint, document: str) -> tuple[Mapping[str, _Factors], Mapping[str, str]]:
    """The factors by the name of the tensor that they change; and tensors that replace others, by their names."""
    factors: dict[str, _Factors] = {}
    whole: dict[str, str] = {}
    for stored in weights.tensors:
        name = stored.removeprefix(_FRONT)
        if match := _FACTOR.fullmatch(name):
            entry = factors.setdefault(f"{match['module']}.weight", _Factors(match["module"], bool(match["kind"]), {}))
            entry.names[match["factor"]] = stored
        else:
            plain = name.replace(".modules_to_save.default.", ".").replace(".base_layer.", ".")
            if _OTHER_PART.fullmatch(plain):
                raise FormatError(f"{document}: {shown(stored)} is no factor of LoRA", hint=MERGE)
            whole[plain] = stored
    if not factors:
        raise FormatError(f"{document}: no factors of LoRA in it")
    return factors, whole


def _low_rank(config: AdapterConfig, weights: Checkpoint, info: TensorInfo | None, entry: _Factors) -> LowRank:
    """The update of one tensor, its factors checked against the tensor's form."""
    if info is None:
        raise _other_base(entry.module, "its base model does not have it")
    if entry.names.keys() != {"A", "B"}:
        raise FormatError(f"{shown(entry.module)} has one factor of LoRA, not two")
    left, right = (weights.tensors[entry.names[factor]] for factor in "BA")
    transposed = entry.embedding or config.transposed
    if not _fit(info, left, right, transposed=transposed):
        sizes = f"{list(left.shape)} and {list(right.shape)}"
        raise _other_base(entry.module, f"factors of {sizes} do not make a {info.dtype} tensor of {list(info.shape)}")
    return LowRank(left, right, config.scaling(entry.module, right.shape[0]), transposed, entry.embedding)


def _other_base(module: str, fault: str) -> PairMismatchError:
    return PairMismatchError(
        f"the adapter changes {shown(module)}: {fault}",
        (module,),
        hint=f"write the model that it was trained on into base_model_name_or_path in {ADAPTER_CONFIG}",
    )


def _fit(info: TensorInfo, left: TensorInfo, right: TensorInfo, *, transposed: bool) -> bool:
    if not all(len(side.shape) == 2 and side.dtype in FLOAT for side in (info, left, right)):
        return False
    (rows, rank), (same_rank, columns) = left.shape, right.shape
    shape = (columns, rows) if transposed else (rows, columns)
    return rank == same_rank and rank > 0 and info.shape == shape
