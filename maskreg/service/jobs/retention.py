"""Retention: what jobs wrote, and the jobs themselves, are deleted some time after they have ended.

::

    done, and older than keep-outputs     the checkpoint is renamed away and deleted; the job says so
    ended, and older than keep-jobs       the job is deleted, unless its checkpoint is still there to be deleted

Artifacts that jobs made are never touched: they have names, and garbage collection knows when nothing points to them.
Nor is a checkpoint that the server offers as a source, or one that a later job wrote under the same name.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

from maskreg.disk import make_folder, occupied
from maskreg.service.jobs.base import OUTPUT_STATES, PAGE, REMOVED, Job, JobFilter, JobQueue, JobState
from maskreg.service.jobs.patching import Patching

_log = logging.getLogger("maskreg.jobs")


def retire(patching: Patching) -> None:
    """Delete what is older than the limits of a server say.

    Raises:
        MaskregError: the database does not answer.
    """
    limits, queue = patching.limits, patching.queue
    if limits.keep_outputs_s:
        for job in _ended(queue, limits.keep_outputs_s):
            if has_output(job):
                _remove_output(patching, job)
    if limits.keep_jobs_s:
        for job in _ended(queue, limits.keep_jobs_s):
            # Else nobody would know any more when its checkpoint is to go.
            if not has_output(job) or not limits.keep_outputs_s:
                queue.forget(job.id)


def has_output(job: Job) -> bool:
    """Whether a job wrote a checkpoint, as far as it knows."""
    return job.kind == "apply" and job.state is JobState.DONE and REMOVED not in (job.result or {})


def _ended(queue: JobQueue, before_s: float) -> Iterator[Job]:
    after = 0
    while page := queue.ended(before_s, after=after, limit=PAGE):
        yield from page
        after = page[-1].number


def _remove_output(patching: Patching, job: Job) -> None:
    output = patching.outputs / job.output
    if _is_of_a_later_job(patching.queue, job):
        patching.queue.note_removed(job.id)
        return
    if _is_offered(patching, output):
        return
    if occupied(output):
        # Renamed first, so that nobody reads half a checkpoint. What a killed worker leaves there is swept.
        attempt = patching.attempt(job.id)
        make_folder(attempt)
        output.rename(attempt / "retired")
        shutil.rmtree(attempt, ignore_errors=True)
        _log.info("job %s: %s is older than its server keeps checkpoints, and was deleted", job.id, job.output)
    patching.queue.note_removed(job.id)


def _is_of_a_later_job(queue: JobQueue, job: Job) -> bool:
    makes = (job.kind, job.output)
    same = JobFilter(projects=(job.project,), states=OUTPUT_STATES, after=job.number, makes=makes, limit=1)
    return bool(queue.list(same))


def _is_offered(patching: Patching, output: Path) -> bool:
    path = output.resolve()
    offered = (source.resolve() for source in patching.sources.offered().values())
    return any(source.is_relative_to(path) or path.is_relative_to(source) for source in offered)
