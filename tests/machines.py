"""What only some machines have."""

from __future__ import annotations

import pytest
import torch

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))]
"""Where Triton's kernels run: interpreted on the CPU anywhere, compiled where there is a GPU."""
