"""Lower limits for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from maskreg.limits import LIMITS


@contextmanager
def limited(**bounds: int) -> Iterator[None]:
    """Let these limits hold in the block."""
    before = {name: getattr(LIMITS, name) for name in bounds}
    try:
        for name, bound in bounds.items():
            object.__setattr__(LIMITS, name, bound)
        yield
    finally:
        for name, bound in before.items():
            object.__setattr__(LIMITS, name, bound)
