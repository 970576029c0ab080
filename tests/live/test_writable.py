"""Tensors in memory that cannot be written are refused, where torch would end the process."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
import torch

from maskreg.errors import UsageError


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_a_file_that_is_mapped_read_only_is_refused(tmp_path: Path) -> None:
    from maskreg.live.memory import MAPS, NamedTensor, refuse_read_only

    path = tmp_path / "weights"
    path.write_bytes(bytes(mmap.PAGESIZE))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        private = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    read_only = torch.frombuffer(mapped, dtype=torch.bfloat16)[5:9]
    own = [torch.frombuffer(private, dtype=torch.bfloat16), torch.zeros(3), torch.zeros(1 << 20), torch.zeros(0)]
    refuse_read_only([*(NamedTensor("own", tensor, True) for tensor in own), NamedTensor("kept", read_only, False)])
    if not MAPS.exists():  # another system than Linux says nothing of its memory
        refuse_read_only([NamedTensor("w", read_only, True)])
        return
    with pytest.raises(UsageError, match=r"\bw\b") as raised:
        refuse_read_only([NamedTensor("w", read_only, True)])
    assert raised.value.hint
