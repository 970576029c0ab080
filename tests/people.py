"""Who runs a test: root can do everything, so tests of permissions become another user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def not_root() -> Iterator[None]:
    """Root can read everything, so for a while the test is another user."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
