"""Which tensors of a running model lie in memory that may be written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path

from maskreg.errors import UsageError
from maskreg.live.aliasing import NamedTensor, span_of

MAPS = Path("/proc/self/maps")
"""Where Linux lists the memory of a process; other systems have none, and nothing is refused there."""


def refuse_read_only(tensors: Iterable[NamedTensor], maps: Path = MAPS) -> None:
    """Reject tensors in host memory that is mapped for reading alone, such as a file that was opened so.

    torch does not know of it: the first write would end the process, with the model half patched.

    Args:
        tensors: of the model.
        maps: the list of the process's memory.

    Raises:
        UsageError: a tensor that will be written cannot be.
    """
    written = [item for item in tensors if item.written and item.tensor.numel() and item.tensor.device.type == "cpu"]
    if not written or not maps.exists():
        return
    # Lines such as: 7f1c2a000000-7f1c2a021000 r--p 00000000 00:00 0
    ranges = []
    for line in maps.read_text(errors="replace").splitlines():
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
