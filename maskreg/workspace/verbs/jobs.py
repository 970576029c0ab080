"""Jobs: apply, merge and extract on a server, which has the checkpoints; ``remote`` names it, or is the default one."""

from __future__ import annotations

import builtins
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote, urlencode

from maskreg.document import checked
from maskreg.errors import ConfigError, ConflictError, MaskregError, UnavailableError, UsageError, stating
from maskreg.progress import SILENT, Progress
from maskreg.result import Result, plain
from maskreg.store.connection import Connection
from maskreg.store.message import BY_CODE, public_facts, sentence, understanding
from maskreg.workspace.workspace import Workspace, opened

POLL_S = 0.5
"""How often a server is asked about a job that is waited for, in seconds."""

PATIENCE_S = 120.0
"""How long a server can stay silent while a job is waited for, in seconds: it can be restarting."""

_MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class JobProgress(Result):
    """How far a job is: ``done`` of ``total`` bytes of a phase, which is empty before the job begins."""

    phase: str = ""
    done: int = 0
    total: int = 0


class JobState(StrEnum):
    """Where a job is on its way."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


@dataclass(frozen=True)
class Job(Result):
    """A job as it is now.

    Attributes:
        number: its place in the order of submission.
        kind: ``apply``, ``merge`` or ``extract``.
        project: whose quota it uses, and whose members see it.
        output: what it makes: the name of a checkpoint on the server, or of an artifact.
        request: what exactly it does; artifacts are pinned.
        log: the last lines of its attempts, each with its time (UTC): phases, and the notes that ``maskreg`` prints.
        attempt: how often it was begun.
        canceled_by: who stopped it, or wants it to stop; empty otherwise.
        result: what it made, and the ``root`` of the checkpoint; None unless it is done.
        error: ``code``, ``title`` and perhaps ``hint``; None unless it failed.
    """

    id: str
    number: int
    kind: str
    state: JobState
    project: str
    output: str
    by: str
    request: dict[str, Any]
    progress: JobProgress
    log: tuple[str, ...]
    attempt: int
    created: datetime
    started: datetime | None
    finished: datetime | None
    canceled_by: str
    result: dict[str, Any] | None
    error: dict[str, Any] | None


@dataclass(frozen=True)
class RemoteJob(Job):
    """A job of a server.

    Attributes:
        remote: the server, as it is called here.
    """

    remote: str

    @property
    def fault(self) -> MaskregError | None:
        """Why it ended with nothing made; None unless it did."""
        if self.state is JobState.CANCELED:
            return ConflictError(f"job {self.id} on {self.remote} was canceled by {self.canceled_by}")
        if self.error is None:
            return None
        title = f"job {self.id} on {self.remote}: {sentence(self.error.get('title')) or 'it failed'}"
        kind = BY_CODE.get(str(self.error.get("code")), MaskregError)
        return kind(title, hint=sentence(self.error.get("hint")), **public_facts(self.error.get("facts")))


def submit(kind: str, remote: str | None = None, *, workspace: Workspace | None = None, **request: object) -> RemoteJob:
    """Have a server apply, merge or extract, with checkpoints and artifacts that it has.

    Args:
        kind: ``apply``, ``merge`` or ``extract``.
        request: fields of ``ApplyRequest``, ``MergeRequest`` or ``ExtractRequest`` in the server's OpenAPI document.
            References are pinned to the digests that they have now; checkpoints are names that the server offers.

    Returns:
        The job, which :func:`wait` waits for.

    Raises:
        UsageError: the remote is a store and no server, or the server does not take the request.
        NotAllowedError: the token has too low a role for an artifact or the project.
        ConflictError: another job makes the same output.
        TryAgainError: too many jobs wait.
    """
    given = {name: plain(value) for name, value in request.items() if value is not None}
    with _server(remote, workspace) as server, stating(remote=server.name):
        return server.job("POST", "/patches", {"kind": kind, **given})


def show(id: str, remote: str | None = None, *, workspace: Workspace | None = None) -> RemoteJob:
    """A job of a server."""
    with _server(remote, workspace) as server:
        return server.job("GET", f"/patches/{_segment(id)}")


def list(
    remote: str | None = None,
    *,
    project: str | None = None,
    states: Collection[str] = (),
    limit: int = 50,
    workspace: Workspace | None = None,
) -> builtins.list[RemoteJob]:
    """Jobs of a server in the projects that the token can read, the newest first.

    Args:
        project: of this project only.
        states: in these states only, such as ``running``.
        limit: at most this many, up to 200.
    """
    query: dict[str, object] = {"limit": limit, "state": [states] if isinstance(states, str) else [*states]}
    query |= {} if project is None else {"project": project}
    with _server(remote, workspace) as server:
        rows = server.ask("GET", f"/patches?{urlencode(query, doseq=True, errors='replace')}")
        with understanding(server.connection.url):
            return [server.read(row) for row in rows["items"]]


def cancel(id: str, remote: str | None = None, *, workspace: Workspace | None = None) -> RemoteJob:
    """Stop a job of a server: at once while it waits, within seconds when it runs. It leaves nothing.

    Raises:
        ConflictError: it is done, or has failed.
        NotAllowedError: the token has too low a role in the job's project.
    """
    with _server(remote, workspace) as server:
        return server.job("POST", f"/patches/{_segment(id)}/cancel")


def sources(remote: str | None = None, *, workspace: Workspace | None = None) -> builtins.list[str]:
    """The names of the checkpoints that a server offers to jobs.

    Raises:
        NotFoundError: the server runs no jobs.
    """
    with _server(remote, workspace) as server:
        return [str(name) for name in server.ask("GET", "/sources").get("items", ())]


def wait(
    id: str, remote: str | None = None, *, progress: Progress = SILENT, workspace: Workspace | None = None
) -> RemoteJob:
    """Wait until a job of a server has ended. Interrupting this does not stop the job.

    Raises:
        MaskregError: why the job failed, of the kind that the same work here would have raised.
        ConflictError: it was canceled.
        UnavailableError: the server has not answered for two minutes.
    """
    with _server(remote, workspace) as server:
        answered = time.monotonic()
        phase: tuple[object, ...] = ()
        done = 0
        while True:
            try:
                job = server.job("GET", f"/patches/{_segment(id)}")
                answered = time.monotonic()
            except UnavailableError:
                if time.monotonic() - answered > PATIENCE_S:
                    raise
                time.sleep(POLL_S)
                continue
            # The server reports the whole again and again; the listener is told what was added.
            now = job.progress
            if now.phase and ((job.attempt, now.phase, now.total) != phase or now.done < done):
                phase, done = (job.attempt, now.phase, now.total), 0
                progress.start(now.phase, now.total)
            if phase and now.done > done:
                progress.advance(now.done - done)
                done = now.done
            if job.fault:
                raise job.fault
            if job.state.is_final:
                return job
            time.sleep(POLL_S)


@dataclass(frozen=True)
class JobServer:
    """A server that runs jobs, as its clients see it."""

    name: str
    connection: Connection

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """The document that a request is answered with."""
        return self.connection.call(method, path, body, max_bytes=_MAX_BYTES)

    def job(self, method: str, path: str, body: object = None) -> RemoteJob:
        """The job that a request is answered with."""
        return self.read(self.ask(method, path, body))

    def read(self, row: Mapping[str, Any]) -> RemoteJob:
        """A job from its document."""
        with understanding(self.connection.url):
            return checked(RemoteJob, {**row, "remote": self.name}, self.connection.url)


@contextmanager
def _server(name: str | None, workspace: Workspace | None) -> Iterator[JobServer]:
    with opened(workspace) as space:
        settings = space.settings
        if name is None and not settings.remotes:
            raise ConfigError("no remote is configured", new_remote="NAME", new_url="https://HOST")
        remote = settings.remote(name)
        if not remote.url.startswith(("https://", "http://")):
            raise UsageError(
                f"{remote.name} is a store ({remote.url}), which does no work",
                hint="do it here, or add a server",
                new_remote="NAME",
                new_url="https://HOST",
            )
        if settings.offline:
            raise UnavailableError(f"remote {remote.name} is not asked while offline is set", offline=True)
        with closing(Connection(remote.url, remote.options)) as connection:
            yield JobServer(remote.name, connection)


def _segment(text: str) -> str:
    if not text:
        raise UsageError("the id of the job is empty", jobs=True)
    return quote(text, safe="", errors="replace")
