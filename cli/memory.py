"""The C library's allocator: give large buffers back to the system."""

from __future__ import annotations

import ctypes
import sys

LARGE_BYTES = 1 << 20
"""Threshold between buffers of blocks and objects, which are larger, and everything else."""

_M_MMAP_THRESHOLD = -3


def return_large_buffers() -> None:
    """Make the allocator return every large buffer to the system when it is freed.

    glibc serves buffers above a threshold by ``mmap`` and returns them when they are freed. But it raises the
    threshold, up to 32 MiB, whenever such a buffer is freed; later buffers come from one heap per thread, whose gaps
    stay. Memory then grows with the size of the checkpoint: by a fifth from 1 to 4 GB with two threads. Setting the
    threshold by hand stops it from moving. Allocators of other systems have no such setting and are left alone.
    """
    if sys.platform != "linux":
        return
    # musl, the other C library of Linux, has no mallopt.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
