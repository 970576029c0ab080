"""Small checkpoints that torch itself writes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tests.checkpoints import SMALL_FILES, Tensor

if TYPE_CHECKING:
    import torch


def as_torch(tensors: Mapping[str, Tensor]) -> dict[str, torch.Tensor]:
    """The same tensors in torch."""
    import torch

    dtypes = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "I64": torch.int64}
    signed = {2: "<i2", 4: "<i4", 8: "<i8"}
    return {
        name: torch.from_numpy(np.array(bits).view(signed[bits.itemsize])).view(dtypes[dtype])
        for name, (dtype, bits) in tensors.items()
    }


def save_torch(folder: Path, tensors: Mapping[str, Tensor], name: str = "pytorch_model.bin") -> Path:
    """A folder with a state dict that ``torch.save`` wrote."""
    import torch

    _small_files(folder)
    torch.save(as_torch(tensors), folder / name)
    return folder


def save_dcp(folder: Path, tensors: Mapping[str, Tensor]) -> Path:
    """A folder with a distributed checkpoint of one process."""
    from torch.distributed.checkpoint.state_dict_saver import save

    _small_files(folder)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # that there is one process
        save(dict(as_torch(tensors)), checkpoint_id=folder, no_dist=True)
    return folder


def _small_files(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in SMALL_FILES.items():
        (folder / name).write_bytes(data)
