from __future__ import annotations

from tests.live.quiet import quiet

__all__ = ["quiet"]
