"""Sparse safetensors: for each changed tensor, ``{name}.indices`` and ``{name}.values``, as grail and TRL read deltas.

Indices are flat, in C order and ascending: I32 up to 2^31 elements, I64 beyond. Values have the tensor's dtype, and
hold the target's bits: ``tensor.view(-1)[indices] = values``. These are the fields of vLLM's
``CheckpointWeightPatch``, too. Grail itself writes rows and columns, which are read as well.

The metadata, all of it text, is what TRL's delta weight sync writes in ``deltas/step_000011.safetensors``::

    format "sparse_weight_patch"  version "1"  sparse "True"  model_version "11"  sparsity "0.9938"  num_changed_params
    total_changed_elements  total_elements  changed_params: a JSON array of the changed tensors' names

An anchor of TRL's, ``sparse "False"``, is a whole checkpoint. After https://huggingface.co/blog/delta-weight-sync of
2026-05-27 and https://github.com/huggingface/trl/pull/5417.

A reader does not hold a tensor's indices. It bisects for the indices of a span, and checks what
it reads. If each span's part is ascending and within the span, all indices are ascending, unique and within the
tensor::

    indices of the file     3 17 20 | 33 40 | 64 ...
    span                    0..31   | 32..63 | 64..95
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable
from contextlib import closing as closed
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.safetensors import open_path
from maskreg.errors import CorruptError, FormatError
from maskreg.exchange.base import KEY, Format, Values, Written
from maskreg.exchange.incoming import patched, tensor_of
from maskreg.exchange.outgoing import Outgoing, changes_in
from maskreg.exchange.output import offsets_in, one_file_plan, planned_output, values_written
from maskreg.tensors.info import TensorInfo, shown

FILE_NAME = "sparse.safetensors"
"""The file in an output that is a folder."""

INDICES, VALUES = ".indices", ".values"
"""Ends of the names of tensors with indices, and with values."""

_INDEX_DTYPES = {"I32": np.int32, "I64": np.int64, "U32": np.uint32}
_INT32 = 1 << 31


def write(update: Outgoing, out: Path, *, force: bool, model_version: int = 1) -> Written:
    """Write the changed elements of every tensor; see :class:`maskreg.exchange.base.Format`."""
    tensors = []
    for name, info in update.changed.items():
        tensors.append(TensorInfo(name + INDICES, _index_dtype(info), (update.counts[name],)))
        tensors.append(TensorInfo(name + VALUES, info.dtype, (update.counts[name],)))
    plan = one_file_plan(update, out, FILE_NAME, tensors, _metadata(update, model_version))
    starts, done = offsets_in(plan), dict.fromkeys(update.changed, 0)
    results = update.map(changes_in, [*update.changed])
    with planned_output(update, plan, out, force=force) as writer, closed(results):
        for span, changes in results:
            name, info, before = span.name, update.changed[span.name], done[span.name]
            done[name] += changes.indices.size
            # Before they are written, for a surplus would reach into the bytes of the next tensor.
            if done[name] > update.counts[name] or (span.stop == info.numel and done[name] < update.counts[name]):
                counts = f"the artifact states {update.counts[name]:,} changed elements and holds {done[name]:,}"
                raise CorruptError(f"tensor {name}", counts)
            indices = changes.indices.astype(_INDEX_DTYPES[_index_dtype(info)])
            for suffix, data in ((INDICES, indices), (VALUES, changes.after)):
                writer.write_at(starts[name + suffix] + before * data.itemsize, np.ascontiguousarray(data))
    return values_written(update, writer.out, plan.total_bytes, writer.kept_files, holds_files=not writer.is_file)


def read(path: Path, source: Checkpoint, closing: Callable[[Any], Any]) -> Values:
    """Open a file, or a folder with one; see :class:`maskreg.exchange.base.Reader`."""
    file = open_path(path)
    closing(file)
    metadata = file.shards[0].metadata
    if metadata.get("sparse") == "False":
        raise FormatError(f"{path}: an anchor, which is a whole checkpoint", hint="extract from it: it is a target")
    patches = {}
    for name in file.tensors:
        stem = name.removesuffix(INDICES)
        if stem == name:
            if not name.endswith(VALUES) or name.removesuffix(VALUES) + INDICES not in file.tensors:
                raise FormatError(f"tensor {shown(name)}: neither indices nor values of a tensor")
            continue
        if stem + VALUES not in file.tensors:
            raise FormatError(f"tensor {shown(stem)}: it has indices and no values")
        patches[stem] = SparsePatch(file, tensor_of(source, stem)).apply
    if metadata.get("num_changed_params", str(len(patches))) != str(len(patches)):
        stated = shown(metadata["num_changed_params"])
        raise CorruptError(str(path), f"its metadata states {stated} changed tensors, and it has {len(patches)}")
    return patched(source, patches, path, metadata.get(KEY))


def _metadata(update: Outgoing, model_version: int) -> dict[str, str]:
    assert update.source is not None
    changed, total = sum(update.counts.values()), sum(info.numel for info in update.source.tensors.values())
    return {
        "format": "sparse_weight_patch",
        "version": "1",
        "sparse": "True",
        "model_version": str(model_version),
        "num_changed_params": str(len(update.changed)),
        "total_changed_elements": str(changed),
        "total_elements": str(total),
        "sparsity": str(1 - changed / max(total, 1)),
        "changed_params": json.dumps(list(update.changed)),
        KEY: update.lineage(),
    }


def _index_dtype(info: TensorInfo) -> str:
    return "I32" if info.numel <= _INT32 else "I64"


class SparsePatch:
    """The changes of one tensor: indices and the target's elements, each a tensor of a file; :meth:`apply` is a patch.

    Indices are flat ``[k]``, or rows and columns ``[2, k]`` of the tensor with all dimensions but the first as one.
    """

    def __init__(self, file: Checkpoint, info: TensorInfo) -> None:
        """Check dtypes, shapes and the count; indices and values are checked where they are read."""
        self._file, self._info = file, info
        self._indices, self._values = file.tensors[info.name + INDICES], file.tensors[info.name + VALUES]
        self._count = self._values.numel
        self._positions: dict[int, int] = {0: 0, info.numel: self._count}
        if self._indices.dtype not in _INDEX_DTYPES:
            raise self._fault(f"its indices are {self._indices.dtype}, not {', '.join(_INDEX_DTYPES)}")
        if self._values.shape != (self._count,) or self._indices.shape not in ((self._count,), (2, self._count)):
            raise self._fault(f"indices {list(self._indices.shape)} with values {list(self._values.shape)}")
        if self._values.dtype != info.dtype:
            raise self._fault(f"its values are {self._values.dtype}; the source has {info.dtype}")
        if self._count > info.numel:
            raise self._fault(f"{self._count:,} indices for {info.numel:,} elements")

    def apply(self, start: int, stop: int, values: npt.NDArray[Any]) -> None:
        """Change the elements that lie in ``[start, stop)``, in place."""
        first = self._position(start)
        # No more indices than elements lie in between.
        last = self._position(stop, first, min(self._count, first + stop - start))
        if first > last:
            raise self._fault("indices are not in ascending order")
        if first == last:
            return
        indices = self._index(first, last)
        if indices[0] < start or indices[-1] >= stop or (indices[1:] <= indices[:-1]).any():
            raise self._fault(self._order_fault(indices))
        values[indices - start] = self._file.read(self._values.name, first, last)

    def _index(self, at: int, stop: int) -> npt.NDArray[np.int64]:
        """Flat indices of changes ``[at, stop)``."""
        if len(self._indices.shape) == 1:
            return self._stored(at, stop)
        rows, columns = self._stored(at, stop), self._stored(self._count + at, self._count + stop)
        height = self._info.shape[0] if self._info.shape else 1
        width = self._info.numel // max(1, height)
        for numbers, size in ((rows, height), (columns, width)):
            outside = numbers[(numbers < 0) | (numbers >= size)]
            if outside.size:
                raise self._fault(f"index {int(outside[0])} is not within a dimension of {size:,}")
        return rows * width + columns

    def _stored(self, at: int, stop: int) -> npt.NDArray[np.int64]:
        values = self._file.read(self._indices.name, at, stop)
        return values.view(_INDEX_DTYPES[self._indices.dtype]).astype(np.int64)

    def _position(self, element: int, least: int = 0, most: int | None = None) -> int:
        """How many indices lie before an element, if they ascend: the same number each time, also where they do not."""
        if element not in self._positions:
            every, most = range(self._count), self._count if most is None else most
            at = bisect_left(every, element, least, most, key=lambda at: int(self._index(at, at + 1)[0]))
            return self._positions.setdefault(element, at)
        return self._positions[element]

    def _order_fault(self, indices: npt.NDArray[np.int64]) -> str:
        outside = indices[(indices < 0) | (indices >= self._info.numel)]
        if outside.size:
            return f"index {int(outside[0])} is not within its {self._info.numel:,} elements"
        repeated = indices[1:][indices[1:] == indices[:-1]]
        if repeated.size:
            return f"index {int(repeated[0])} appears twice"
        return "indices are not in ascending order"

    def _fault(self, fault: str) -> FormatError:
        return FormatError(f"tensor {self._info.name}: {fault}")


FORMAT = Format(
    name="sparse-safetensors",
    holds="values",
    accepts="a .safetensors file with NAME.indices and NAME.values, or a folder with one",
    write=write,
    read=read,
    options={"model_version": 1},
)
