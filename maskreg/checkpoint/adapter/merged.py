"""A model that is computed as it is read: the base's values plus the low-rank update of an adapter.

What ``merge_and_unload`` of peft computes, ``W + (B @ A) * scaling`` in fp32, rounded to the base's dtype. Each value
of ``B @ A`` is a sum of as many products as the rank, added one after another, so that it does not depend on which rows
are computed together: a span needs only its own rows of B.

::

    span of 3 rows and a half      rows r .. r+3 of B, padded to 16 rows  @  A  ->  4 rows of the update
                                   plus the span of the base, rounded once
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from maskreg.bucket import Location
from maskreg.checkpoint import companions
from maskreg.checkpoint.base import Checkpoint, expect, locations_of
from maskreg.checkpoint.layouts import ADAPTER_CONFIG
from maskreg.closing import Closing
from maskreg.errors import UsageError
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.cast import fp32_of, stored_bits
from maskreg.tensors.info import TensorInfo

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.checkpoint.base import Memory

    Floats = npt.NDArray[np.float32]

_FACTORS = 4
"""Factors that stay in memory: threads work on one tensor or two at a time."""

_ROWS = 16
"""Rows are computed in multiples of this: a product of a single row would be added up in another order."""


class LowRank(NamedTuple):
    """An update of one tensor.

    Attributes:
        left: ``B``, outputs by rank.
        right: ``A``, rank by inputs.
        scaling: of their product.
        transposed: the tensor is inputs by outputs.
        rounded: the product is rounded to the tensor's dtype before it is added, as peft does for embeddings.
    """

    left: TensorInfo
    right: TensorInfo
    scaling: float
    transposed: bool
    rounded: bool = False


class AdapterWeights(NamedTuple):
    """What an adapter holds.

    Attributes:
        checkpoint: its weights.
        updates: by the name of the base's tensor.
        whole: tensors that it holds whole: by the name in the base, its name there.
    """

    checkpoint: Checkpoint
    updates: Mapping[str, LowRank]
    whole: Mapping[str, str]


class MergedAdapter(Closing):
    """A base model with an adapter merged in; see :class:`maskreg.checkpoint.base.Checkpoint`.

    Attributes:
        remarks: what was merged, one sentence each.
        locations: of the adapter and of its base model.
    """

    format = "adapter"
    hub = ""

    def __init__(
        self,
        path: Location,
        base: Checkpoint,
        adapter: AdapterWeights,
        remark: str,
        limits: Limits = LIMITS,
    ) -> None:
        """Take over two open checkpoints.

        Args:
            path: the adapter's directory.
            base: the base model; closed with this.
            adapter: its weights are closed with this.
            remark: what was merged.
            limits: the largest small file.
        """
        self.path, self.remarks = path, (remark,)
        self.locations: tuple[Location, ...] = (path, *locations_of(base))
        self._base, self._limits = base, limits
        self._weights, self._updates, self._whole = adapter
        stored = {name: self._weights.tensors[own] for name, own in self._whole.items()}
        self.tensors: Mapping[str, TensorInfo] = {
            **base.tensors,
            **{name: TensorInfo(name, info.dtype, info.shape) for name, info in stored.items()},
        }
        self._cached_factor = lru_cache(_FACTORS)(self._whole_factor)
        self._closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        weights = AdapterWeights(self._weights, self._updates, self._whole)
        return MergedAdapter, (self.path, self._base, weights, self.remarks[0], self._limits)

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor; see :meth:`maskreg.checkpoint.base.Checkpoint.read`."""
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
        """Hand on what is read soon; see :class:`maskreg.checkpoint.base.Expecting`."""
        whole = self._whole.get(name)
        return expect(self._weights, whole, start, stop) if whole else expect(self._base, name, start, stop)

    def small_files(self) -> Mapping[str, Location]:
        """The base's, and the adapter's in their place; not the adapter's configuration."""
        own = companions.small_files(self.path, self._limits)
        return {**self._base.small_files(), **{name: path for name, path in own.items() if name != ADAPTER_CONFIG}}

    def other_weights(self) -> tuple[str, ...]:
        """Names of what is never copied: all is computed, so there are none."""
        return ()

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
