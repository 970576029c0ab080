"""Tensors of a running model as memory: their bits, leaf hashes, which share memory, and which can be written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from maskreg.digest import LeafHashes, leaf_hashes
from maskreg.errors import UsageError
from maskreg.tensors.bus import down, on_device

Hash = Callable[[Sequence[torch.Tensor]], list[LeafHashes]]

DTYPES: Mapping[str, torch.dtype] = {
    "BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64,
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32,
    "I64": torch.int64, "C64": torch.complex64,
}  # fmt: skip
"""By their names in checkpoints."""

NAMES: Mapping[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}
"""Their names in checkpoints."""

CODES: Mapping[int, torch.dtype] = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers of the same width, to read the bits of elements; by the bytes of an element."""


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor as integers of their width, in the same memory."""
    tensor = tensor.detach()
    return tensor.view(CODES[tensor.element_size()])


def storage_key(tensor: torch.Tensor) -> tuple[object, ...]:
    """A key that is equal for two tensors of the same elements of the same memory, in the same order."""
    if tensor.is_meta or hasattr(tensor, "to_local") or not tensor.numel():
        return (id(tensor),)
    return (tensor.device, tensor.data_ptr(), tensor.element_size(), tuple(tensor.shape), tensor.stride())


class NamedTensor(NamedTuple):
    """A tensor with its name, and whether it will be written."""

    name: str
    tensor: torch.Tensor
    written: bool


def refuse_aliasing(tensors: Iterable[NamedTensor]) -> None:
    """Reject tensors of which writing one could change another, or another element of the same.

    Tensors of which one begins before another ends are rejected, and so are columns of one matrix.
    """
    last, reached = None, 0
    present = (item for item in tensors if item.tensor.numel())
    for item in sorted(present, key=lambda item: (str(item.tensor.device), span_of(item.tensor))):
        start, stop = span_of(item.tensor)
        if item.written and stop - start < item.tensor.nbytes:
            raise _refusal(f"tensor {item.name} repeats elements of its memory (an expanded one does)")
        if last is None or last.tensor.device != item.tensor.device:
            last, reached = item, stop
        elif start < reached and (item.written or last.written):
            raise _refusal(f"tensors {last.name} and {item.name} overlap in memory")
        elif stop > reached:
            last, reached = item, stop


def span_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Address of a tensor's first byte, and of the one behind its last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _refusal(problem: str) -> UsageError:
    return UsageError(
        f"{problem}, so it cannot be patched in place",
        hint="apply it to the source on disk, which writes a new checkpoint",
    )


MAPS = Path("/proc/self/maps")
"""Where Linux lists the memory of a process; other systems have none, and nothing is refused there."""


def refuse_read_only(tensors: Iterable[NamedTensor]) -> None:
    """Reject tensors in host memory that is mapped for reading alone, such as a file that was opened so.

    torch does not know of it: the first write would end the process, with the model half patched.
    """
    written = [item for item in tensors if item.written and item.tensor.numel() and item.tensor.device.type == "cpu"]
    if not written or not MAPS.exists():
        return
    # Lines such as: 7f1c2a000000-7f1c2a021000 r--p 00000000 00:00 0
    ranges = []
    for line in MAPS.read_text(errors="replace").splitlines():
        addresses, rights = line.split(maxsplit=2)[:2]
        if "w" not in rights:
            start, stop = (int(address, 16) for address in addresses.split("-"))
            ranges.append((start, stop))
    starts = [start for start, _ in ranges]
    for item in written:
        first, end = span_of(item.tensor)
        # In order and apart: the last one that begins before the tensor's end is the only one to look at.
        at = bisect_right(starts, end - 1) - 1
        if at >= 0 and ranges[at][1] > first:
            raise UsageError(
                f"tensor {item.name} lies in memory that is mapped read-only, so it cannot be patched in place",
                hint="clone the tensor, or map its file copy-on-write",
            )


def leaves_of(spans: Sequence[torch.Tensor]) -> list[LeafHashes]:
    """Hashes of the leaves of each span, which starts at a leaf: uint8 ``[k, 16]`` each; on the CPU without Triton."""
    hash_on_device = device_hash() if spans and on_device(spans[0]) else None
    if hash_on_device is not None:
        return hash_on_device(spans)
    return [leaf_hashes(down(span, "weights")) for span in spans]


@cache
def device_hash() -> Hash | None:
    """What hashes on a device; None without Triton."""
    # Triton takes a second to import and exists on Linux only: imported where it is used.
    try:
        from maskreg.live.triton_leaves import leaves_on_device
    except ImportError:
        return None
    return leaves_on_device
