"""What each kind of job does: the use cases that the command line calls, on what the server has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from maskreg.digest import Digest
from maskreg.errors import NotFoundError, WrongCheckpointError
from maskreg.progress import Progress
from maskreg.ref import Card, Ref
from maskreg.registry.transfer.pull import bring
from maskreg.service.faults import without_paths
from maskreg.service.jobs.base import Job
from maskreg.service.jobs.outputs import Attempt
from maskreg.service.jobs.patching import Patching
from maskreg.workspace.apply import Applied, apply
from maskreg.workspace.extract import extract
from maskreg.workspace.merge import Merged, merge
from maskreg.workspace.push import push
from maskreg.workspace.tag import tag
from maskreg.workspace.workspace import Workspace

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Work:
    """One attempt at a job.

    Attributes:
        job: the job.
        patching: checkpoints to read, and where to write.
        space: a workspace of the server.
        remote: name in it of the registry that is served; None for the local one.
        progress: listens.
        commit: called when all is done but to make it visible; from then on the work is not interrupted.
        admit: refuses an artifact, of a size in bytes, that the project has no room for.
    """

    job: Job
    patching: Patching
    space: Workspace
    remote: str | None
    progress: Progress
    commit: Callable[[], None]
    admit: Callable[[Digest, int], None]

    def bring(self, text: str, *parts: str) -> Ref:
        """Bring an artifact that a request names, pinned, to the local registry of the server."""
        ref = Ref.parse(text)
        assert ref.digest is not None  # pinned when the job was submitted
        if self.remote is not None:
            jobs = self.space.settings.jobs
            registry = self.space.registry(self.remote)
            bring(self.space.local, registry, ref.digest, parts=parts, progress=self.progress, jobs=jobs)
        return ref

    def candidates(self, root: str) -> list[tuple[str, Path]]:
        """Checkpoints to try as a source: the one that was named, or all that are offered, the likely ones first."""
        name = self.job.request["source"]
        if name is not None:
            return [(name, self.patching.sources.path(name))]
        catalog = self.space.local.catalog
        seen = set(catalog.seen_sources(root)) if catalog is not None else set()
        offered = self.patching.sources.offered().items()
        return sorted(offered, key=lambda item: (str(item[1].absolute()) not in seen, item[0]))

    def with_source(self, root: str, work: Callable[[Path], ResultT]) -> tuple[ResultT, str]:
        """Do work on the first candidate that turns out to be the source; give what it returned, and its name.

        Raises:
            WrongCheckpointError: the one that was named is another checkpoint.
            NotFoundError: none of those that are offered is it.
        """
        tried: list[str] = []
        for name, path in self.candidates(root):
            try:
                return work(path), name
            except WrongCheckpointError as error:
                if self.job.request["source"] is not None:
                    error.hint, error.facts["job_sources"] = "", True
                    raise
                tried.append(name)
        raise NotFoundError(
            f"none of the checkpoints that the server offers ({', '.join(tried) or 'none'}) is the source",
            hint="the operator can offer it as a source of jobs",
        )

    def register(self, digest: Digest, card: Card) -> Mapping[str, Any]:
        """Point the name that the request wants at an artifact, in the name of whoever submitted the job."""
        name, by = Ref.parse(self.job.request["name"]), self.job.by
        tag(digest, name, card=card, by=by, workspace=self.space)
        if self.remote is not None:
            self.space.remote(self.remote).by = by
            push(name, remote=self.remote, force=True, progress=self.progress, workspace=self.space)
        return {"ref": str(name), "digest": str(digest), "verified": True}


def applied(work: Work) -> Mapping[str, Any]:
    """Apply an artifact to a checkpoint of the server, and give the result its name."""
    attempt = Attempt(work.patching, work.job)
    result = attempt.begin()
    if result is None:
        request = work.job.request
        ref = work.bring(request["artifact"], "reverse" if request["revert"] else "delta", "mask")
        manifest = work.space.find(ref).manifest
        before, after = manifest.source, manifest.target
        if request["revert"]:
            before, after = after, before

        def patch(path: Path) -> Applied:
            return apply(
                ref,
                path,
                attempt.checkpoint,
                revert=request["revert"],
                progress=work.progress,
                workspace=work.space,
            )

        written, source = work.with_source(before.root, patch)
        lists = ("skipped_files", "code_files", "code_left_out")
        result = {
            "output": work.job.output,
            "artifact": str(ref),
            "digest": str(ref.digest),
            "source": source,
            # Under a rule that drops small changes, the result is the target of nothing.
            "root": after.root if manifest.exact or request["revert"] else None,
            "tensors": written.tensors,
            "verified_tensors": written.tensors,
            "bytes": written.bytes,
            **{name: list(getattr(written, name)) for name in lists},
            "notes": _notes(written.notes),
        }
        attempt.written(result)
    work.commit()
    attempt.publish()
    return result


def merged(work: Work) -> Mapping[str, Any]:
    """Merge artifacts, and register the result."""
    request, registry = work.job.request, work.space.registry(work.remote)
    refs = [work.bring(text, "mask", "delta") for text in request["artifacts"]]
    masks = {} if request["mask"] is None else {"mask": work.bring(request["mask"], "mask")}
    families = {registry.resolve(ref).card.family for ref in refs}

    def combine(path: Path) -> Merged:
        return merge(
            refs,
            method=request["method"],
            weights=request["weights"],
            settings={**request["settings"], **masks},
            source=path,
            progress=work.progress,
            workspace=work.space,
        )

    made, source = work.with_source(work.space.find(refs[0]).manifest.source.root, combine)
    assert made.digest is not None  # without an output, a merge makes an artifact
    work.admit(made.digest, work.space.find(made.digest).size)
    work.commit()
    card = Card(families.pop() if len(families) == 1 else "", "merge", description=request["description"])
    report = made.to_json()["report"]
    return {**work.register(made.digest, card), "source": source, "report": report, "notes": _notes(made.notes)}


def extracted(work: Work) -> Mapping[str, Any]:
    """Compare two checkpoints, and register what moved."""
    request = work.job.request
    source, target = (work.patching.sources.path(request[side]) for side in ("source", "target"))
    options = {name: request[name] for name in ("rule", "mask_only", "reversible")}
    made = extract(source, target, **options, progress=work.progress, workspace=work.space)
    work.admit(made.digest, made.size)
    work.commit()
    card = Card(*(request[name] for name in ("family", "method", "license", "description")))
    sides = {side: request[side] for side in ("source", "target")}
    return {**work.register(made.digest, card), **sides, "notes": _notes(made.notes)}


def _notes(notes: Sequence[str]) -> list[str]:
    return [without_paths(note) for note in notes]


KINDS: Mapping[str, Callable[[Work], Mapping[str, Any]]] = {"apply": applied, "merge": merged, "extract": extracted}
"""What each kind of job does; gives the result that the job shows."""
