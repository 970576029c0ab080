"""Two real updates of one small model: on-policy distillation and RLVR, where a machine has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

TINY = Path(os.environ.get("MASKREG_TINY", ROOT.parent / "shared" / "data" / "tiny"))
"""A folder with checkpoints `source`, `teacher`, `opd` and `rlvr`."""

needs_tiny = pytest.mark.skipif(not (TINY / "source").is_dir(), reason=f"no small trained models in {TINY}")
