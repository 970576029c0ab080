"""Where the files of a run are, and what else does not change its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RunPaths:
    """Where a run finds what its setup identifies, and how it is carried out.

    Attributes:
        source: folder of the checkpoint that training starts from.
        data: the data file.
        home: folder of the registry that has the mask.
        teacher: folder of the teacher; empty without one.
        device: ``cpu`` or ``cuda``.
        parallel: how several processes share the model: ``fsdp`` or ``ddp``.
        save_every: steps between checkpoints.
    """

    source: str
    data: str
    home: str
    teacher: str = ""
    device: str = "cpu"
    parallel: Literal["fsdp", "ddp"] = "fsdp"
    save_every: int = 50
