"""Which tensors of a running model share memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch

from maskreg.errors import UsageError


class NamedTensor(NamedTuple):
    """A tensor with its name, and whether it will be written."""

    name: str
    tensor: torch.Tensor
    written: bool


def refuse_aliasing(tensors: Iterable[NamedTensor]) -> None:
    """Reject tensors of which writing one would change another, or another element of the same.

    Address ranges that intersect are not enough: columns of one matrix interleave and are fine. So tensors are first
    grouped into clusters of intersecting ranges, and within a cluster each marks its bytes in a map of the cluster;
    one that is to be written must find none of its bytes marked. Columns ``a`` and ``b`` of a ``[3, 2]`` matrix mark
    ``a.a.a.`` and ``.b.b.b``; a view of its first row would find ``a`` marked.

    Args:
        tensors: no two of the same elements. A cluster takes a byte of memory per byte of its range.

    Raises:
        UsageError: a tensor that will be written overlaps another, or repeats an element of its own.
    """
    by_device: dict[torch.device, list[NamedTensor]] = {}
    for item in tensors:
        if item.tensor.numel():
            by_device.setdefault(item.tensor.device, []).append(item)
    for group in by_device.values():
        for item in group:
            start, stop = span_of(item.tensor)
            if item.written and stop - start < item.tensor.nbytes:
                raise _refusal(f"tensor {item.name} repeats elements of its memory (an expanded one does)")
        for cluster in _clusters(sorted(group, key=lambda item: span_of(item.tensor))):
            if len(cluster) > 1:
                _refuse_common(cluster)


def _clusters(by_address: Iterable[NamedTensor]) -> Iterator[list[NamedTensor]]:
    # In order of addresses, a tensor can only overlap those before it if it begins before the last of them ends.
    cluster: list[NamedTensor] = []
    reached = 0
    for item in by_address:
        start, stop = span_of(item.tensor)
        if start >= reached and cluster:
            yield cluster
            cluster = []
        cluster.append(item)
        reached = max(reached, stop)
    yield cluster


def _refuse_common(cluster: list[NamedTensor]) -> None:
    if not any(item.written for item in cluster):
        return
    first = min(span_of(item.tensor)[0] for item in cluster)
    marked = torch.zeros(max(span_of(item.tensor)[1] for item in cluster) - first, dtype=torch.bool)
    # Written ones come last, so that each is compared with all others.
    ordered = sorted(cluster, key=lambda item: item.written)
    for number, item in enumerate(ordered):
        own = _bytes_of(item.tensor, marked, first)
        if item.written and own.any():
            other = next(o.name for o in ordered[:number] if _overlap(o.tensor, item.tensor, marked.zero_(), first))
            raise _refusal(f"tensors {other} and {item.name} overlap in memory")
        own.fill_(True)


def _overlap(left: torch.Tensor, right: torch.Tensor, blank: torch.Tensor, first: int) -> bool:
    _bytes_of(left, blank, first).fill_(True)
    return bool(_bytes_of(right, blank, first).any())


def _bytes_of(tensor: torch.Tensor, memory: torch.Tensor, first: int) -> torch.Tensor:
    """The bytes of a tensor in a map with one element per byte from address ``first``."""
    width = tensor.element_size()
    dims = [(size, stride * width) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride]
    sizes, strides = zip(*dims, (width, 1), strict=True)
    return memory.as_strided(sizes, strides, tensor.data_ptr() - first)


def span_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Address of a tensor's first byte, and of the one behind its last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _refusal(problem: str) -> UsageError:
    return UsageError(
        f"{problem}, so it cannot be patched in place",
        hint="apply it to the source on disk, which writes a new checkpoint",
    )
