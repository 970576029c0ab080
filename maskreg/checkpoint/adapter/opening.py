"""Opening an adapter: its configuration, its weights and its base model, and what of the base they change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from typing import NamedTuple

from maskreg.bucket import Location
from maskreg.checkpoint import torch_files
from maskreg.checkpoint.adapter.config import MERGE, AdapterConfig, parse_config
from maskreg.checkpoint.adapter.merged import AdapterWeights, LowRank, MergedAdapter
from maskreg.checkpoint.base import Checkpoint, Reopen
from maskreg.checkpoint.files import in_folder, read_whole
from maskreg.checkpoint.layouts import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from maskreg.checkpoint.safetensors import reader as safetensors
from maskreg.errors import DataError, FormatError, NotFoundError, PairMismatchError, prefixed
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.dtypes import FLOAT
from maskreg.tensors.info import TensorInfo
from maskreg.tensors.names import shown
from maskreg.words import counted

_FACTOR = re.compile(r"(?P<module>.+)\.lora_(?P<kind>embedding_)?(?P<factor>[AB])(\.default)?(\.weight)?")
_OTHER_PART = re.compile(r".*\.(lora_|modules_to_save|base_layer|token_adapter|trainable_tokens).*")
_FRONT = "base_model.model."


class _Factors(NamedTuple):
    module: str
    embedding: bool
    names: dict[str, str]


def open_path(path: Location, *, hub: str = "", limits: Limits = LIMITS, reopen: Reopen) -> MergedAdapter:
    """Open an adapter and its base model.

    Raises:
        DataError: either breaks its format, or they do not fit together.
        NotFoundError: the base model, or a file of the adapter, is missing.
    """
    data = read_whole(path / ADAPTER_CONFIG, limits.small_file_bytes)
    with in_folder(path):
        config = parse_config(data, limits)
    file = next(path / name for name in ADAPTER_WEIGHTS if (path / name).exists())
    with ExitStack() as stack:
        weights = stack.enter_context(_open_weights(file, limits))
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


def _open_weights(file: Location, limits: Limits) -> Checkpoint:
    if file.suffix == ".safetensors":
        return safetensors.open_path(file, limits=limits)
    return torch_files.open_path(file, limits=limits)


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
                raise FormatError(
                    f"{document}: {shown(stored)} is no factor of LoRA",
                    hint=MERGE,
                )
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
