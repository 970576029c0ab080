"""What a server that patches checkpoints consists of: a queue, checkpoints to read, and a folder to write to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from maskreg.service.jobs.base import JobLimits, JobQueue
from maskreg.service.jobs.sources import Sources

ATTEMPTS = ".attempts"
"""The folder inside that of outputs where attempts write; what is done is renamed out of it."""


@dataclass(frozen=True)
class Patching:
    """The parts of a server that runs jobs.

    Attributes:
        queue: the jobs.
        sources: checkpoints that jobs may read.
        outputs: the folder where checkpoints are written, as ``PROJECT/NAME``.
        limits: how much is done at the same time.
    """

    queue: JobQueue
    sources: Sources
    outputs: Path
    limits: JobLimits = field(default_factory=JobLimits)

    def output(self, project: str, name: str) -> Path:
        """Where the checkpoint of a name is written."""
        return self.outputs / project / name

    def attempt(self, job: str) -> Path:
        """Where a job writes what is not done yet."""
        return self.outputs / ATTEMPTS / job
