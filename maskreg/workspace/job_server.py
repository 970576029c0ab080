"""A server that runs jobs, as its clients see it: what is asked of it, and what it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from maskreg.document import checked
from maskreg.errors import ConfigError, ConflictError, MaskregError, UnavailableError, UsageError
from maskreg.progress import Progress
from maskreg.result import Result
from maskreg.store.connection import Connection
from maskreg.store.message import Message
from maskreg.store.refusals import sentence, understanding
from maskreg.workspace.workspace import Workspace

_FINAL = ("done", "failed", "canceled")
_MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class RemoteJob(Result):
    """A job of a server.

    Attributes:
        remote: the server, as it is called here.
        id: of the job.
        kind: ``apply``, ``merge`` or ``extract``.
        state: ``queued``, ``running``, ``done``, ``failed`` or ``canceled``.
        project: whose quota it uses.
        output: what it makes: the name of a checkpoint on the server, or of an artifact.
        by: who submitted it.
        request: what exactly it does; artifacts are pinned.
        progress: ``phase``, and ``done`` and ``total`` bytes of it.
        attempt: how often it was begun.
        created, started, finished: when; ``started`` and ``finished`` are None before.
        canceled_by: who stopped it, or wants it to stop; empty otherwise.
        result: what it made, and the ``root`` of the checkpoint; None unless it is done.
        error: ``code``, ``title`` and perhaps ``hint``; None unless it failed.
    """

    remote: str
    id: str
    kind: str
    state: str
    project: str
    output: str
    by: str
    request: Mapping[str, Any]
    progress: Mapping[str, Any]
    attempt: int
    created: str
    started: str | None
    finished: str | None
    canceled_by: str
    result: Mapping[str, Any] | None
    error: Mapping[str, Any] | None

    @property
    def is_final(self) -> bool:
        """Whether nothing happens to the job any more."""
        return self.state in _FINAL

    def check(self) -> RemoteJob:
        """This job, unless it ended with nothing made.

        Raises:
            MaskregError: why it failed, of the kind that the same work here would have raised.
            ConflictError: it was canceled.
        """
        if self.state == "canceled":
            raise ConflictError(f"job {self.id} on {self.remote} was canceled by {self.canceled_by}")
        if self.error is not None:
            kind = _kind_of(str(self.error.get("code", "")))
            title = f"job {self.id} on {self.remote}: {sentence(self.error.get('title')) or 'it failed'}"
            hint = sentence(self.error.get("hint"))
            raise kind(title, hint=hint)
        return self


class Relay:
    """Tells a listener here what a job elsewhere reports as a whole, again and again."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._begun: tuple[object, ...] = ()
        self._done = 0

    def tell(self, job: RemoteJob) -> None:
        """Tell the listener what has changed since."""
        phase, done, total = (job.progress.get(name, 0) for name in ("phase", "done", "total"))
        if not phase:
            return
        begun = (job.attempt, phase, total)
        if begun != self._begun or done < self._done:
            self._progress.start(str(phase), int(total))
            self._begun, self._done = begun, 0
        if done > self._done:
            self._progress.advance(int(done) - self._done)
            self._done = int(done)


class JobServer:
    """The part of a server that runs jobs."""

    def __init__(self, name: str, connection: Connection) -> None:
        self._name = name
        self._connection = connection

    @classmethod
    def of(cls, workspace: Workspace, name: str | None) -> JobServer:
        """The server that a remote is.

        Raises:
            ConfigError: there is no such remote.
            UsageError: the remote is a store.
            UnavailableError: offline is set.
        """
        settings = workspace.settings
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
            raise UnavailableError(
                f"remote {remote.name} is not asked while offline is set",
                offline=True,
            )
        return cls(remote.name, Connection(remote.url, remote.options))

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """The document that a request is answered with.

        Raises:
            MaskregError: what the server answered.
            UnavailableError: it does not answer.
            ConfigError: something else does.
        """
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if body is not None else {}
        # A job that is submitted twice is refused the second time, which would pass for another's with that output.
        message = Message(
            method, path, headers=headers, content=content, max_bytes=_MAX_BYTES, repeatable=method == "GET"
        )
        return self._connection.document(message)

    def job(self, id: str) -> RemoteJob:
        """A job."""
        return self._job(self.ask("GET", f"/patches/{_segment(id)}"))

    def cancel(self, id: str) -> RemoteJob:
        """Stop a job."""
        return self._job(self.ask("POST", f"/patches/{_segment(id)}/cancel"))

    def submit(self, body: Mapping[str, Any]) -> RemoteJob:
        """Submit a job."""
        return self._job(self.ask("POST", "/patches", body))

    def jobs(self, query: Mapping[str, object]) -> list[RemoteJob]:
        """Jobs, the newest first."""
        rows = self.ask("GET", f"/patches?{urlencode(query, doseq=True)}")
        with understanding(self._connection.url):
            return [self._job(row) for row in rows["items"]]

    def _job(self, row: Mapping[str, Any]) -> RemoteJob:
        with understanding(self._connection.url):
            job = checked(RemoteJob, {**row, "remote": self._name}, self._connection.url)
            for name in ("done", "total"):
                int(job.progress.get(name, 0))
            return job


def _segment(text: str) -> str:
    if not text:
        raise UsageError("the id of the job is empty", jobs=True)
    return quote(text, safe="")


def _kind_of(code: str) -> type[MaskregError]:
    """The kind of error with a code, or the nearest above it that is made of a message alone."""
    kinds: list[type[MaskregError]] = [MaskregError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    named = next((kind for kind in kinds if kind.code == code), MaskregError)
    return next(
        kind for kind in named.__mro__ if issubclass(kind, MaskregError) and kind.__init__ is MaskregError.__init__
    )
