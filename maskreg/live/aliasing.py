"""Which tensors of a running model lie on the same memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch

from maskreg.errors import UsageError


class Held(NamedTuple):
    """A tensor by name, and whether it will be written to."""

    name: str
    tensor: torch.Tensor
    written: bool


def refuse_overlap(tensors: Iterable[Held]) -> None:
    """Make sure that writing to one tensor leaves the others as they are, and itself as it was written.

    Tensors whose elements only interleave, such as columns of one matrix, pass. Telling those from tensors that
    overlap takes a byte of memory for each byte from the first to the last of them.

    Args:
        tensors: no two of them at the same place.

    Raises:
        UsageError: one that will be written to overlaps another, or repeats an element of its own.
    """
    by_device: dict[torch.device, list[Held]] = {}
    for held in tensors:
        if held.tensor.numel():
            by_device.setdefault(held.tensor.device, []).append(held)
    for here in by_device.values():
        for held in here:
            start, stop = _span(held.tensor)
            if held.written and stop - start < held.tensor.nbytes:
                raise _refusal(f"tensor {held.name} repeats elements of its memory (an expanded one does)")
        for cluster in _clusters(sorted(here, key=lambda held: _span(held.tensor))):
            if len(cluster) > 1:
                _refuse_common(cluster)


def _clusters(by_address: Iterable[Held]) -> Iterator[list[Held]]:
    # Only a tensor that begins before all earlier ones have ended can overlap one of them.
    cluster: list[Held] = []
    reached = 0
    for held in by_address:
        start, stop = _span(held.tensor)
        if start >= reached and cluster:
            yield cluster
            cluster = []
        cluster.append(held)
        reached = max(reached, stop)
    yield cluster


def _refuse_common(cluster: list[Held]) -> None:
    if not any(held.written for held in cluster):
        return
    first = min(_span(held.tensor)[0] for held in cluster)
    taken = torch.zeros(max(_span(held.tensor)[1] for held in cluster) - first, dtype=torch.bool)
    # Those that are written to come last, so that each is held against all others.
    ordered = sorted(cluster, key=lambda held: held.written)
    for number, held in enumerate(ordered):
        mine = _bytes_of(held.tensor, taken, first)
        if held.written and mine.any():
            other = next(o.name for o in ordered[:number] if _meet(o.tensor, held.tensor, taken.zero_(), first))
            raise _refusal(f"tensors {other} and {held.name} overlap in memory")
        mine.fill_(True)


def _meet(one: torch.Tensor, other: torch.Tensor, blank: torch.Tensor, first: int) -> bool:
    _bytes_of(one, blank, first).fill_(True)
    return bool(_bytes_of(other, blank, first).any())


def _bytes_of(tensor: torch.Tensor, memory: torch.Tensor, first: int) -> torch.Tensor:
    """The elements of ``memory``, one for each byte from address ``first`` on, that a tensor lies on."""
    item = tensor.element_size()
    steps = [(size, step * item) for size, step in zip(tensor.shape, tensor.stride(), strict=True) if step]
    sizes, strides = zip(*steps, (item, 1), strict=True)
    return memory.as_strided(sizes, strides, tensor.data_ptr() - first)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _refusal(what: str) -> UsageError:
    return UsageError(f"{what}: that cannot be patched in place", hint="maskreg apply writes a new checkpoint")
