"""A run as its readers see it: its tag, the chain below, and links on their way here."""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple
from weakref import finalize

from maskreg.closing import Closing
from maskreg.digest import Digest
from maskreg.errors import UsageError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.chains import Chains
from maskreg.settings import Remote, checked
from maskreg.store import FileStore
from maskreg.workspace.workspace import Workspace, as_ref

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact
    from maskreg.store.base import Service


class Brought(NamedTuple):
    """Links that were brought to this machine.

    Attributes:
        artifacts: in order, each with whether it is reverted; none where the weights are there already.
        size: bytes that were fetched.
        at: when they were here, by the monotonic clock.
    """

    artifacts: list[tuple[Artifact, bool]]
    size: int
    at: float


class Run(Closing):
    """A run, in the registry that has its tag.

    Links from a remote are in a registry of their own until they are applied: a reader of a long run would otherwise
    fill its disk with links that no name keeps. Garbage collection removes what a process left that died.

    Attributes:
        ref: the tag.
        registry: the one that has it.
        url: where that is; ``local`` for the local registry.
        service: the service that has it; None elsewhere.
        chains: its links, here and there.
    """

    def __init__(self, ref: str | Ref, *, remote: str | None = None, workspace: Workspace | None = None) -> None:
        """Decide where it is read; nothing is asked yet.

        Args:
            remote: name, URL or path of the registry; by default the default remote, or the local registry where there
                is none.

        Raises:
            UsageError: a pinned reference.
            ConfigError: an unknown remote.
        """
        self.ref = as_ref(ref)
        if self.ref.digest is not None:
            raise UsageError(f"{self.ref} is pinned, so it never moves", hint="leave out the digest")
        with ExitStack() as opened:
            self.space = space = workspace or opened.enter_context(Workspace())
            elsewhere = self._registry_at(remote, opened)
            self.registry, self.url = elsewhere or space.local, elsewhere.url if elsewhere else "local"
            self.service: Service | None = elsewhere.store.service if elsewhere is not None else None
            self.chains = Chains([space.local, *([elsewhere] if elsewhere is not None else [])])
            name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
            self._folder = space.root / "staging" / name
            self._links = space.local
            if elsewhere is not None:
                self._links = opened.enter_context(Registry(FileStore(self._folder), name="links", root=self._folder))
            opened.callback(finalize(self, shutil.rmtree, self._folder, ignore_errors=True))
            self._open = opened.pop_all()

    def bring(self, head: Digest, at: str) -> Brought:
        """The links that turn weights of one root into those that an artifact gives."""
        way = self.chains.way(self.ref, head, at)
        artifacts, size = self.chains.bring(way, self._links, self.space.settings.jobs)
        return Brought(artifacts, size, time.monotonic())

    def clear(self) -> None:
        """Delete the links that were brought, and free what is known of the chain."""
        shutil.rmtree(self._folder / "artifacts", ignore_errors=True)
        self.chains.forget()

    def close(self) -> None:
        """Delete what was brought, and close what was opened."""
        self._open.close()

    def _registry_at(self, remote: str | None, opened: ExitStack) -> Registry | None:
        if remote is None or "/" not in remote:
            return self.space.remote_to_ask(remote)
        settings = self.space.settings
        known = next((known for known in settings.remotes.values() if known.url == remote.rstrip("/")), None)
        return opened.enter_context(Registry.remote(known or checked(Remote("run", remote)), settings))


def own_name() -> str:
    """What a service shows this process as where it was given no name: the machine and the process id."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:80]
    return f"{host.lstrip('.-') or 'host'}:{os.getpid()}"
