"""From a request to a job: what it names is looked up, pinned and checked, so that a worker need not trust it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maskreg.artifact.presence import read_manifest
from maskreg.disk import occupied
from maskreg.errors import NotFoundError, OutputExistsError, PartAbsentError, QuotaError, UsageError
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.service.faults import NoRoomError
from maskreg.service.jobs.base import OUTPUT_STATES, Job, JobFilter, JobState, NewJob, all_jobs
from maskreg.service.jobs.patching import Patching
from maskreg.service.jobs.requests import ApplyRequest, ExtractRequest, MergeRequest
from maskreg.service.jobs.retention import has_output
from maskreg.service.jobs.sources import clean_name
from maskreg.space import free_bytes
from maskreg.tensors.dtypes import ITEM_BYTES
from maskreg.words import human_bytes
from maskreg.workspace.workspace import as_name

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest, Side

Permit = Callable[[str], None]
"""Refuses a project in which whoever sends the request may not do what it says."""

PermitName = Callable[[Ref], None]
"""Refuses a tag that whoever sends the request may not set."""


@dataclass(frozen=True)
class Submitter:
    """Who submits, and what they may.

    Attributes:
        name: of the principal.
        may_read: refuses projects whose artifacts they may not read.
        may_write: refuses projects that they may not write to.
        may_set: refuses tags that they may not set, in projects that they may write to.
    """

    name: str
    may_read: Permit
    may_write: Permit
    may_set: PermitName


def new_job(
    registry: Registry, patching: Patching, request: ApplyRequest | MergeRequest | ExtractRequest, by: Submitter
) -> NewJob:
    """The job that a request means.

    Raises:
        NotFoundError: there is no such artifact or checkpoint for this principal, or the artifact lacks a part.
        NotAllowedError: they may not write to the project.
        UsageError: a name that is no name, or settings that make no sense.
        OutputExistsError: the output exists.
        QuotaError: it is larger than jobs may write.
        NoRoomError: the disk would fill up.
    """
    match request:
        case ApplyRequest():
            return _apply(registry, patching, request, by)
        case MergeRequest():
            return _merge(registry, patching, request, by)
        case ExtractRequest():
            return _extract(patching, request, by)


def _apply(registry: Registry, patching: Patching, request: ApplyRequest, by: Submitter) -> NewJob:
    ref = Ref.parse(request.artifact)
    by.may_read(ref.project)
    project = ref.project if request.project is None else Ref.parse(f"{request.project}/name").project
    by.may_write(project)
    pinned, manifest = _pinned(registry, ref)
    part = "reverse" if request.revert else "delta"
    if part not in manifest.parts:
        raise PartAbsentError(f"{ref} has no {part}: it cannot be applied that way", shown=ref)
    if request.source is not None:
        patching.sources.path(request.source)
    output = clean_name(ref.name if request.output is None else request.output, "an output")
    if occupied(patching.output(project, output)):
        raise OutputExistsError(f"{project}/{output}", reason="on the server", hint="choose another output")
    size = _bytes_of(manifest.source if request.revert else manifest.target)
    _require_room(patching, project, size)
    _require_space(patching, size)
    values = {
        "artifact": str(pinned),
        "source": request.source,
        "output": output,
        "revert": request.revert,
        "bytes": size,
    }
    return NewJob("apply", project, by.name, f"{project}/{output}", values)


def _merge(registry: Registry, patching: Patching, request: MergeRequest, by: Submitter) -> NewJob:
    from maskreg.flow.merge.recipe import Recipe

    name = as_name(request.name)
    by.may_write(name.project)
    by.may_set(name)
    if "mask" in request.settings:
        raise UsageError("the mask is no setting here", hint="give it as 'mask', beside 'settings'")
    references = [Ref.parse(text) for text in [*request.artifacts, *([request.mask] if request.mask else [])]]
    for ref in references:
        by.may_read(ref.project)
    weights = [1.0] * len(request.artifacts) if request.weights is None else request.weights
    plan = Recipe.of(request.method, weights, request.settings)
    plan.check(len(request.artifacts), masked=request.mask is not None)
    pinned = [str(_pinned(registry, ref)[0]) for ref in references]
    if request.source is not None:
        patching.sources.path(request.source)
    Card("", "merge", description=request.description).checked()
    values = {
        **request.model_dump(exclude={"kind"}),
        "name": str(name),
        "artifacts": pinned[: len(request.artifacts)],
        "mask": pinned[-1] if request.mask else None,
    }
    return NewJob("merge", name.project, by.name, _full(name), values)


def _extract(patching: Patching, request: ExtractRequest, by: Submitter) -> NewJob:
    from maskreg.rules import parse_rule

    name = as_name(request.name)
    by.may_write(name.project)
    by.may_set(name)
    for checkpoint in (request.source, request.target):
        patching.sources.path(checkpoint)
    parse_rule(request.rule)
    Card(request.family, request.method, request.license, request.description).checked()
    values = {**request.model_dump(exclude={"kind"}), "name": str(name)}
    return NewJob("extract", name.project, by.name, _full(name), values)


def _full(name: Ref) -> str:
    return f"{name.project}/{name.name}:{name.tag}"


def _pinned(registry: Registry, ref: Ref) -> tuple[Ref, Manifest]:
    """The reference with the digest that it means now, which its name has or ever had, and the manifest."""
    if ref.digest is not None and ref.digest not in {entry.digest for entry in registry.history(ref)}:
        # A digest alone gives nobody the artifacts of other projects.
        raise NotFoundError(f"{ref.with_tag(ref.tag)} never was {ref.digest.short}", history=ref)
    digest = registry.resolve(ref).digest
    return ref.pinned(digest), read_manifest(registry.store, digest)[1]


def _bytes_of(side: Side) -> int:
    if side.cast:
        return side.params * ITEM_BYTES[side.cast]
    return sum(ITEM_BYTES[dtype] * count for dtype, count in side.dtypes.items())


def _require_room(patching: Patching, project: str, size: int) -> None:
    """Refuse a checkpoint that is larger than jobs may write, alone or with the others of its project.

    Raises:
        QuotaError: it is.
    """
    limits = patching.limits
    if limits.max_bytes and size > limits.max_bytes:
        raise QuotaError(
            f"the output needs {human_bytes(size)}, and a job may write {human_bytes(limits.max_bytes)} here",
            hint="the operator can raise the limit of bytes of a job",
        )
    if not limits.max_bytes_per_project:
        return
    sizes: dict[str, int] = {}
    for job in all_jobs(patching.queue, JobFilter(projects=(project,), states=OUTPUT_STATES)):
        if not job.state.is_final or _has_output(patching, job):
            # The newest comes first. An older one of the same output wrote what is not there any more.
            sizes.setdefault(job.output, _promised(job))
    used = sum(sizes.values())
    if used + size > limits.max_bytes_per_project:
        raise QuotaError(
            f"the outputs of project {project} may have {human_bytes(limits.max_bytes_per_project)}, have "
            f"{human_bytes(used)}, and this one needs {human_bytes(size)}",
            hint="the operator can raise the limit of bytes of a project, or keep outputs for less time",
        )


def _has_output(patching: Patching, job: Job) -> bool:
    return has_output(job) and occupied(patching.outputs / job.output)


def _promised(job: Job) -> int:
    """Bytes of the checkpoint that a job writes; 0 where it writes none."""
    return int(job.request.get("bytes", 0))


def _require_space(patching: Patching, needed: int) -> None:
    """Refuse an output that does not fit beside those of the jobs before it.

    Raises:
        NoRoomError: it does not.
    """
    promised = sum(map(_promised, all_jobs(patching.queue, JobFilter(states=(JobState.QUEUED, JobState.RUNNING)))))
    free = free_bytes(patching.outputs)
    if needed + promised > free:
        before = f", and {promised:,} for the jobs before it" if promised else ""
        raise NoRoomError(
            f"the output needs {needed:,} bytes{before}; {free:,} are free on the server",
            hint="remove outputs that nobody needs, then submit it again",
            needed=needed,
        )
