"""Jobs: apply, merge and extract on a server, which has the checkpoints."""

from __future__ import annotations

import builtins
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from maskreg.errors import UnavailableError
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.workspace.arguments import check_arguments
from maskreg.workspace.job_server import JobServer, Relay, RemoteJob
from maskreg.workspace.workspace import Workspace, as_ref, opened

POLL_S = 0.5
"""How often a server is asked about a job that is waited for, in seconds."""

PATIENCE_S = 120.0
"""How long a server may not answer while a job is waited for, in seconds: it may be started anew."""


@check_arguments
def apply(
    artifact: str | Ref,
    remote: str | None = None,
    *,
    source: str | None = None,
    output: str | None = None,
    project: str | None = None,
    revert: bool = False,
    workspace: Workspace | None = None,
) -> RemoteJob:
    """Have a server patch a checkpoint that it has: the source into the target, or back.

    Args:
        artifact: a reference on the server; pinned to the digest that it has now.
        remote: name of the server; the default remote when left out.
        source: name of a checkpoint that the server offers; looked for among all of them when left out.
        output: name of the new checkpoint there; that of the artifact when left out.
        project: whose quota the job uses; the artifact's project when left out.
        revert: turn the target into the source.
        workspace: names the server; by default what the settings say.

    Returns:
        The job, which :func:`wait` waits for.

    Raises:
        UsageError: the remote is a store and no server, or a name is no name.
        NotFoundError: there is no such artifact or checkpoint there, or it runs no jobs.
        NotAllowedError: the token may not read the artifact or write to the project.
        ConflictError: another job makes the same output.
        TryAgainError: too many jobs wait.
        UnavailableError: the server does not answer.
    """
    names = {"source": source, "output": output, "project": project}
    body = {"kind": "apply", "artifact": str(as_ref(artifact)), "revert": revert}
    return _submit(body | {name: value for name, value in names.items() if value is not None}, remote, workspace)


@check_arguments
def merge(
    artifacts: Sequence[str | Ref],
    name: str | Ref,
    remote: str | None = None,
    *,
    method: str = "",
    weights: Sequence[float] | None = None,
    settings: Mapping[str, Any] | None = None,
    source: str | None = None,
    description: str = "",
    workspace: Workspace | None = None,
) -> RemoteJob:
    """Have a server merge updates of one source into one artifact of its registry.

    Args:
        artifacts: references on the server, in order; each pinned to the digest that it has now.
        name: ``[project/]name[:tag]`` of the new artifact there.
        remote: name of the server; the default remote when left out.
        method: as for :func:`maskreg.merge`.
        weights: in the order of the artifacts; 1 each when left out.
        settings: of the method; ``mask`` is a reference on the server.
        source: name of the checkpoint that the artifacts were made from; looked for there when left out.
        description: one paragraph for people.
        workspace: names the server; by default what the settings say.

    Raises:
        MaskregError: as for :func:`apply`.
    """
    given = dict(settings or {})
    mask = given.pop("mask", None)
    body = {
        "kind": "merge",
        "artifacts": [str(as_ref(ref)) for ref in artifacts],
        "name": str(as_ref(name)),
        "method": method,
        "settings": given,
        "description": description,
        **({"weights": [float(weight) for weight in weights]} if weights is not None else {}),
        **({"mask": str(as_ref(mask))} if mask is not None else {}),
        **({"source": source} if source is not None else {}),
    }
    return _submit(body, remote, workspace)


@check_arguments
def extract(
    source: str,
    target: str,
    name: str | Ref,
    remote: str | None = None,
    *,
    family: str = "",
    method: str = "",
    license: str = "",
    description: str = "",
    rule: str = "exact",
    mask_only: bool = False,
    reversible: bool = False,
    workspace: Workspace | None = None,
) -> RemoteJob:
    """Have a server compare two checkpoints that it has, and store what moved in its registry.

    Args:
        source: name of a checkpoint that the server offers.
        target: name of another, that post-training made of it.
        name: ``[project/]name[:tag]`` of the new artifact there.
        remote: name of the server; the default remote when left out.
        family: model family, such as ``qwen3-8b``.
        method: how the target was trained.
        license: SPDX identifier.
        description: one paragraph for people.
        rule: what counts as moved.
        mask_only: keep which coordinates moved, not to what.
        reversible: keep the source's values too.
        workspace: names the server; by default what the settings say.

    Raises:
        MaskregError: as for :func:`apply`.
    """
    body = {
        "kind": "extract",
        "source": source,
        "target": target,
        "name": str(as_ref(name)),
        "rule": rule,
        "family": family,
        "method": method,
        "license": license,
        "description": description,
        "mask_only": mask_only,
        "reversible": reversible,
    }
    return _submit(body, remote, workspace)


@check_arguments
def show(id: str, remote: str | None = None, *, workspace: Workspace | None = None) -> RemoteJob:
    """A job of a server.

    Args:
        id: of the job.
        remote: name of the server; the default remote when left out.
        workspace: names the server; by default what the settings say.

    Raises:
        NotFoundError: there is no such job in a project that the token may read.
        UnavailableError: the server does not answer.
    """
    with opened(workspace) as space:
        return JobServer.of(space, remote).job(id)


@check_arguments
def list(
    remote: str | None = None,
    *,
    project: str | None = None,
    states: Collection[str] = (),
    limit: int = 50,
    workspace: Workspace | None = None,
) -> builtins.list[RemoteJob]:
    """Jobs of a server in the projects that the token may read, the newest first.

    Args:
        remote: name of the server; the default remote when left out.
        project: of this project only.
        states: in these states only, such as ``running``.
        limit: at most this many, up to 200.
        workspace: names the server; by default what the settings say.

    Raises:
        NotFoundError: there is no such project, or the server runs no jobs.
        UnavailableError: the server does not answer.
    """
    with opened(workspace) as space:
        query: dict[str, object] = {"limit": limit, "state": [states] if isinstance(states, str) else [*states]}
        return JobServer.of(space, remote).jobs(query | ({} if project is None else {"project": project}))


@check_arguments
def cancel(id: str, remote: str | None = None, *, workspace: Workspace | None = None) -> RemoteJob:
    """Stop a job of a server: at once while it waits, within seconds when it runs. It leaves nothing.

    Args:
        id: of the job.
        remote: name of the server; the default remote when left out.
        workspace: names the server; by default what the settings say.

    Raises:
        ConflictError: it is done, or has failed.
        NotAllowedError: the token may not write to the job's project.
        NotFoundError: there is no such job in a project that the token may read.
        UnavailableError: the server does not answer.
    """
    with opened(workspace) as space:
        return JobServer.of(space, remote).cancel(id)


@check_arguments
def sources(remote: str | None = None, *, workspace: Workspace | None = None) -> builtins.list[str]:
    """The names of the checkpoints that a server offers to jobs.

    Args:
        remote: name of the server; the default remote when left out.
        workspace: names the server; by default what the settings say.

    Raises:
        NotFoundError: the server runs no jobs.
        UnavailableError: the server does not answer.
    """
    with opened(workspace) as space:
        return [str(name) for name in JobServer.of(space, remote).ask("GET", "/sources").get("items", ())]


@check_arguments
def wait(
    id: str, remote: str | None = None, *, progress: Progress = SILENT, workspace: Workspace | None = None
) -> RemoteJob:
    """Wait until a job of a server has ended. Interrupting this does not stop the job.

    Args:
        id: of the job.
        remote: name of the server; the default remote when left out.
        progress: progress callback, in bytes of the work there.
        workspace: names the server; by default what the settings say.

    Raises:
        MaskregError: why the job failed, of the kind that the same work here would have raised.
        ConflictError: it was canceled.
        UnavailableError: the server has not answered for two minutes.
    """
    with opened(workspace) as space:
        server, relay = JobServer.of(space, remote), Relay(progress)
        answered = time.monotonic()
        while True:
            try:
                job = server.job(id)
                answered = time.monotonic()
            except UnavailableError:
                if time.monotonic() - answered > PATIENCE_S:
                    raise
                time.sleep(POLL_S)
                continue
            relay.tell(job)
            if job.is_final:
                return job.check()
            time.sleep(POLL_S)


def _submit(body: Mapping[str, Any], remote: str | None, workspace: Workspace | None) -> RemoteJob:
    with opened(workspace) as space:
        return JobServer.of(space, remote).submit(body)
