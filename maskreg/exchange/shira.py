"""PEFT's SHiRA adapter: sparse additions to the weights of linear layers, r(m + n) of them in each.

A folder with ``adapter_config.json`` and ``adapter_model.safetensors``. For a layer of shape ``(m, n)``::

    base_model.model.NAME.shira_indices     I32 (2, k), rows and columns
    base_model.model.NAME.shira_weight      F32 (k,), added to the weights there

k is r(m + n), with one r for all layers. A mask hardly ever has such counts, so it is refused, or with ``nearest`` cut
and filled: the largest changes of each layer, and zeros at unchanged coordinates where there are too few. What cannot
come out of an addition is never written: NaN, or zeros that change their sign.

NAME is the module's path in the class that the source's ``config.json`` names, which can differ from the checkpoint's
name of the tensor. PEFT skips modules that it cannot find without a word, so every name is looked up in that class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.files import read_whole
from maskreg.checkpoint.plan import OutputPlan
from maskreg.checkpoint.safetensors import build_shard, open_path
from maskreg.errors import FormatError, UsageError
from maskreg.exchange.base import KEY, Format, Values, Written, parse_lineage
from maskreg.exchange.incoming import parse_document, require_folder, target_of, tensor_of
from maskreg.exchange.outgoing import ChangedSpan, Outgoing
from maskreg.exchange.output import (
    json_file,
    lineage_metadata,
    offsets_in,
    planned_output,
    sources_of,
    value_notes,
)
from maskreg.exchange.sparse import SparsePatch, StoredChanges
from maskreg.limits import Limits
from maskreg.live.classes import places_of
from maskreg.tensors.cast import fp32_of, stored_bits, to_float
from maskreg.tensors.info import HALF, TensorInfo, shown
from maskreg.words import counted, listed

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""The files of an adapter."""

_PREFIX, _SUFFIX = "base_model.model.", ".weight"
_INDICES, _VALUES = ".shira_indices", ".shira_weight"


class _Additions(NamedTuple):
    """What is added in a layer.

    Attributes:
        indices: int64, ascending, of the layer in C order.
        values: fp32.
        impossible: changes that no addition gives.
    """

    indices: npt.NDArray[np.int64]
    values: npt.NDArray[np.float32]
    impossible: int


def write(update: Outgoing, out: Path, *, force: bool, nearest: bool = False, rank: int = 0) -> Written:
    """Write an adapter; see :class:`maskreg.exchange.base.Format`."""
    if rank < 0:
        raise UsageError(f"rank {rank}: a rank is positive")
    if rank and not nearest:
        raise UsageError("a rank is a choice of how much to leave out", hint="set nearest=true too, or no rank")
    assert update.source is not None
    places = places_of(update.source, update.changed.keys())
    modules = {name: place.module for name, place in places.items() if place.linear}
    layers = [info for name, info in update.changed.items() if name in modules and info.dtype in HALF]
    fitting = {info.name for info in layers}
    unfit = [
        f"{name} ({places[name].kind if name in places else 'not in the class of the model'})"
        for name in update.changed
        if name not in fitting
    ]
    r = _chosen_rank(update, layers, unfit, rank) if nearest else _exact_rank(update, layers, unfit)
    plan = _plan(update, layers, modules, r, lossless=not nearest)
    starts = offsets_in(plan)
    kept = padded = lost = 0
    with planned_output(update, plan, out, force=force) as writer:
        for info, additions in _layers(update, layers):
            if additions.impossible and not nearest:
                raise UsageError(
                    f"tensor {info.name}: {counted(additions.impossible, 'change')} that no addition gives, such as a "
                    "zero that changes its sign or a NaN",
                    hint="use slime, or set nearest=true to leave them out",
                )
            k = r * sum(info.shape)
            indices, values = _fitted(additions, k)
            kept += min(k, additions.indices.size)
            lost += additions.impossible + max(0, additions.indices.size - k)
            padded += max(0, k - additions.indices.size)
            rows_and_columns = np.stack(np.divmod(indices, info.shape[1])).astype(np.int32)
            writer.write_at(starts[_key(modules[info.name], _INDICES)], rows_and_columns)
            writer.write_at(starts[_key(modules[info.name], _VALUES)], values)
    return Written(
        out=writer.out,
        tensors=len(layers),
        coordinates=kept,
        bytes=plan.total_bytes,
        kept_files=writer.kept_files,
        notes=(
            *value_notes(update, holds_files=False),
            *(_nearest_notes(r, lost, padded, unfit) if nearest else ()),
        ),
    )


def read(path: Path, source: Checkpoint, limits: Limits, closing: Callable[[Any], Any]) -> Values:
    """Open a folder; see :class:`maskreg.exchange.base.Reader`."""
    require_folder(path, FORMAT.accepts)
    config = parse_document(read_whole(path / CONFIG, limits.small_file_bytes), path / CONFIG, limits)
    if config.get("peft_type") != "SHIRA":
        raise FormatError(f"{path / CONFIG}: peft_type is {shown(config.get('peft_type'))}, not SHIRA")
    file = open_path(path / WEIGHTS, limits=limits)
    closing(file)
    names = {}
    for key in file.tensors:
        module = key.removeprefix(_PREFIX).removesuffix(_INDICES).removesuffix(_VALUES)
        expected = {_key(module, suffix) for suffix in (_INDICES, _VALUES)}
        if key not in expected or not expected <= file.tensors.keys():
            raise FormatError(f"tensor {shown(key)}: neither indices nor values of a SHiRA layer")
        names[module] = module + _SUFFIX
    if not source.tensors.keys() >= set(names.values()):
        # The class is not needed where the checkpoint has the same names.
        places = places_of(source, source.tensors.keys())
        names |= {place.module: name for name, place in places.items() if place.linear and place.module in names}
    patches = {}
    for module, name in names.items():
        info = tensor_of(source, name)
        patches[info.name] = SparsePatch(info, _Added(file, info, _key(module, _INDICES), _key(module, _VALUES))).apply
    lineage = parse_lineage(file.shards[0].metadata.get(KEY), str(path / WEIGHTS), limits)
    return Values(target_of(source, patches, path, lineage, (CONFIG,), limits), lineage)


class _Added(StoredChanges):
    """The additions of a layer, as changes of its tensor."""

    def _check_values(self) -> None:
        if self._info.dtype not in HALF or len(self._info.shape) != 2:
            raise self._fault(f"{self._info.dtype} {list(self._info.shape)} is no linear layer of 16 bits")
        if self._values.dtype not in ("F32", "F16", "BF16"):
            raise self._fault(f"its values are {self._values.dtype}")

    def change(self, at: int, stop: int, before: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The sums of the source's elements and additions ``[at, stop)``."""
        return _sum(before, fp32_of(super().change(at, stop, before), self._values.dtype), self._info.dtype)


def _sum(before: npt.NDArray[Any], values: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[Any]:
    """What PEFT's merge gives: the sum in fp32, rounded to the layer's dtype."""
    with np.errstate(over="ignore", invalid="ignore"):
        return stored_bits(fp32_of(before, dtype) + values, dtype)


def _key(module: str, suffix: str) -> str:
    return f"{_PREFIX}{module}{suffix}"


def _most(info: TensorInfo) -> int:
    """The largest r that a layer has room for."""
    return info.numel // max(1, sum(info.shape))


def _exact_rank(update: Outgoing, layers: Sequence[TensorInfo], unfit: Sequence[str]) -> int:
    hint = "set nearest=true to store the largest changes of each linear layer, or use slime"
    if unfit:
        raise UsageError(f"a SHiRA adapter holds linear layers of 16 bits alone, not {listed(unfit, 3)}", hint=hint)
    ranks = {info.name: update.counts[info.name] / sum(info.shape) for info in layers}
    if not ranks:
        raise UsageError("nothing changes, and a SHiRA adapter cannot be empty", hint="use another format")
    first = next(iter(ranks.values()))
    for name, rank in ranks.items():
        if rank != first or rank != int(rank):
            m, n = update.changed[name].shape
            raise UsageError(
                "a SHiRA adapter has r(m + n) coordinates in every layer, with one whole r for all: "
                f"{name} has {update.counts[name]:,} in {m} x {n}, so r would be {rank:.4g}, "
                f"and {first:.4g} in {next(iter(ranks))}",
                hint=hint,
            )
    return int(first)


def _chosen_rank(update: Outgoing, layers: list[TensorInfo], unfit: Sequence[str], rank: int) -> int:
    layers[:] = [info for info in layers if _most(info)]
    if not layers:
        instead = f", but {listed(unfit, 3)}" if unfit else ""
        raise UsageError(f"no linear layer changes{instead}; a SHiRA adapter holds nothing else", hint="use slime")
    moved = sum(update.counts[info.name] for info in layers)
    most = min(map(_most, layers))
    if rank > most:
        tight = next(info for info in layers if _most(info) == most)
        raise UsageError(f"rank {rank}: {tight.name} has room for r = {most} at most", hint=f"set rank={most}")
    return rank or max(1, min(most, round(moved / sum(sum(info.shape) for info in layers))))


def _plan(
    update: Outgoing, layers: Sequence[TensorInfo], modules: Mapping[str, str], r: int, *, lossless: bool
) -> OutputPlan:
    tensors = []
    for info in layers:
        k, module = r * sum(info.shape), modules[info.name]
        tensors += [TensorInfo(_key(module, _INDICES), "I32", (2, k)), TensorInfo(_key(module, _VALUES), "F32", (k,))]
    config = {
        "peft_type": "SHIRA",
        "base_model_name_or_path": update.artifact.manifest.source.hub.partition("@")[0],
        "r": r,
        "mask_type": "random",
        "random_seed": None,
        "target_modules": [modules[info.name] for info in layers],
        "modules_to_save": None,
        "fan_in_fan_out": False,
        "init_weights": True,
        "inference_mode": True,
        "task_type": None,
    }
    metadata = lineage_metadata(update.lineage()) if lossless else {"format": "pt"}
    return OutputPlan(
        shards=(build_shard(WEIGHTS, tensors, metadata),),
        files={CONFIG: json_file(config)},
        sources=sources_of(update),
    )


def _layers(update: Outgoing, layers: Sequence[TensorInfo]) -> Iterator[tuple[TensorInfo, _Additions]]:
    results = update.map(_additions, [info.name for info in layers])
    for name, spans in groupby(results, key=lambda result: result[0].name):
        parts = [additions for _, additions in spans]
        indices, values = (np.concatenate(columns) for columns in zip(*(part[:2] for part in parts), strict=True))
        yield update.changed[name], _Additions(indices, values, sum(part.impossible for part in parts))


def _additions(span: ChangedSpan) -> _Additions:
    local = np.flatnonzero(span.before != span.after)
    before, after = span.before[local], span.after[local]
    with np.errstate(over="ignore", invalid="ignore"):
        values = (to_float(after, span.info.dtype) - to_float(before, span.info.dtype)).astype(np.float32)
    possible = _sum(before, values, span.info.dtype) == after
    return _Additions(local[possible] + span.start, values[possible], int(np.count_nonzero(~possible)))


def _fitted(additions: _Additions, k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """The k largest additions, ties to the lower index; or all, and zeros at the lowest coordinates that stay."""
    indices, values = additions.indices, additions.values
    if indices.size > k:
        sizes = np.abs(values)
        least = np.sort(sizes)[sizes.size - k]
        larger = sizes > least
        ties = np.flatnonzero(sizes == least)[: k - int(np.count_nonzero(larger))]
        larger[ties] = True
        return indices[larger], values[larger]
    # Among the first k elements there are enough that stay.
    stays = np.ones(k, np.bool_)
    stays[indices[: int(np.searchsorted(indices, k))]] = False
    unchanged = np.flatnonzero(stays)[: k - indices.size]
    both = np.concatenate([indices, unchanged])
    order = np.argsort(both, kind="stable")
    return both[order], np.concatenate([values, np.zeros(unchanged.size, np.float32)])[order]


def _nearest_notes(r: int, lost: int, padded: int, unfit: Sequence[str]) -> tuple[str, ...]:
    notes = [f"r = {r}: {counted(lost, 'change')} left out, {counted(padded, 'unchanged coordinate')} filled in"]
    if unfit:
        notes.append(f"left out, for they are no linear layers: {listed(unfit, 3)}")
    return tuple(notes)


FORMAT = Format(
    name="shira",
    holds="values",
    accepts=f"a folder with {CONFIG} and {WEIGHTS} of a SHiRA adapter",
    write=write,
    read=read,
    options={"nearest": False, "rank": 0},
)
