"""Checkpoints that jobs write: each attempt in a folder of its own, renamed to the output's name when it is whole.

A job that was begun twice ends once, whenever its worker was killed::

    .attempts/JOB/1/checkpoint          being written            killed: the next attempt removes it, and begins anew
    .attempts/JOB/1/result.json         written when it is whole killed: the next attempt finds it, and goes on below
    PROJECT/NAME                        renamed from there       killed: the next attempt finds result.json alone
    (the queue)                         done, with the result    .attempts/JOB is removed
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maskreg.disk import creating, make_folder, occupied, rename_new, replacing, sync_folder
from maskreg.document import parse_object
from maskreg.errors import NotFoundError
from maskreg.service.jobs.base import Job, JobQueue, LeaseLostError
from maskreg.service.jobs.patching import ATTEMPTS, Patching

_CHECKPOINT = "checkpoint"
_RESULT = "result.json"
_MAX_RESULT_BYTES = 1 << 20


class Attempt:
    """The folder of one attempt at a job that writes a checkpoint."""

    def __init__(self, patching: Patching, job: Job) -> None:
        """Take the folder of this attempt; nothing is made yet."""
        self._folder = patching.attempt(job.id)
        self._own = self._folder / str(job.attempt)
        self._job = job
        self._output = patching.outputs / job.output

    @property
    def checkpoint(self) -> Path:
        """Where the checkpoint is written."""
        return self._own / _CHECKPOINT

    def begin(self) -> Mapping[str, Any] | None:
        """Make the folder; or give the result of an earlier attempt that had nothing left to do but to appear."""
        for earlier in sorted(self._folder.glob(f"*/{_RESULT}")):
            self._own = earlier.parent
            return parse_object(earlier.read_bytes(), earlier.name, max_bytes=_MAX_RESULT_BYTES)
        shutil.rmtree(self._folder, ignore_errors=True)
        with creating(self._own):
            make_folder(self._own)
        return None

    def written(self, result: Mapping[str, Any]) -> None:
        """Say that the checkpoint is whole."""
        with replacing(self._own / _RESULT) as file:
            file.write(json.dumps(result).encode())

    def publish(self) -> None:
        """Give the checkpoint its name, unless an earlier attempt has.

        Raises:
            OutputExistsError: something else has the name.
            LeaseLostError: another worker has the job.
        """
        if not occupied(self.checkpoint):
            if occupied(self._output):
                return
            raise LeaseLostError(f"job {self._job.id} was taken by another worker while it was written")
        with creating(self._output):
            make_folder(self._output.parent)
            rename_new(self.checkpoint, self._output)
            sync_folder(self._output.parent)

    def remove(self) -> None:
        """Remove what the attempt has written and not published."""
        shutil.rmtree(self._folder, ignore_errors=True)


def sweep(patching: Patching, queue: JobQueue) -> None:
    """Remove what killed attempts at jobs have left that have ended since."""
    folder = patching.outputs / ATTEMPTS
    if not folder.is_dir():
        return
    for left in folder.iterdir():
        try:
            is_over = queue.get(left.name).state.is_final
        except NotFoundError:
            is_over = True  # the queue was restored from a backup that is older than the job
        if is_over:
            shutil.rmtree(left, ignore_errors=True)
