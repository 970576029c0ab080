"""Versions of a run's weights on one machine, each downloaded and decoded once for all processes that serve them.

::

    FOLDER/<64 digits of the root>/    a checkpoint, complete, with the shards of the source
    FOLDER/lock                        held by the process that makes a version; the others wait, and read its result

A version is made from the nearest one that is there, or from the source. Its links are checked leaf by leaf while it is
made. A process that opens a version made by another can hash it first.
"""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from maskreg.checkpoint import Checkpoint
from maskreg.checkpoint.safetensors import SafetensorsCheckpoint
from maskreg.closing import Closing
from maskreg.digest import Digest
from maskreg.disk import make_folder
from maskreg.errors import DataError, MissingLinkError, NotFoundError, NotOnChainError, UsageError, WrongCheckpointError
from maskreg.flow.chain import root_of
from maskreg.flow.versions import Versions
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.chains import Chains
from maskreg.settings import Remote, checked
from maskreg.workspace.sync_event import SyncEvent, counts_of
from maskreg.workspace.verbs.follow import Links, own_name
from maskreg.workspace.workspace import CheckpointLike, Workspace, as_ref

if TYPE_CHECKING:
    import torch

LATEST = "latest"
"""The version that the tag points to."""

_KEPT = 2


@dataclass(frozen=True)
class Version:
    """Weights that a link gives.

    Attributes:
        digest: the link; None for the source of the run.
        root: identity of the weights.
    """

    digest: Digest | None
    root: str


class NodeVersions(Closing):
    """The versions of a run that are on this machine. Safe to use from several threads and processes.

    Attributes:
        ref: the tag of the run.
        folder: where the versions are.
        source: the checkpoint that the run began from, or one that any of its links gave.
    """

    def __init__(
        self,
        ref: str | Ref,
        source: CheckpointLike,
        *,
        remote: str | None = None,
        folder: str | Path | None = None,
        workspace: Workspace | None = None,
    ) -> None:
        """Open the source; the run is not looked at yet.

        Args:
            ref: the tag of the run.
            source: a path, a hub id or an open checkpoint.
            remote: name, URL or path of the registry that has the tag; by default the default remote, or the local
                registry where there is none.
            folder: where to keep versions; by default a folder in the local registry, one for each remote and tag.

        Raises:
            UsageError: a reference with a digest.
            ConfigError: an unknown remote.
            NotFoundError: there is no source.
        """
        self.ref = as_ref(ref)
        if self.ref.digest is not None:
            raise UsageError(f"{self.ref} is pinned, so it never moves", hint="leave out the digest")
        self._open = ExitStack()
        with ExitStack() as failed:
            failed.callback(self._open.close)
            self._space = workspace or self._open.enter_context(Workspace())
            self._remote = self._registry_at(remote)
            self.source = self._open.enter_context(self._space.checkpoint(source, side="source"))
            failed.pop_all()
        where = self._remote.url if self._remote is not None else "local"
        own = f"{self.ref.name}-{Digest.of(f'{where} {self.ref}'.encode()).hex[:16]}"
        self.folder = Path(folder) if folder is not None else self._space.root / "sync" / own
        make_folder(self.folder)
        self._versions = Versions(self.folder)
        self._links = self._open.enter_context(Links(self._space, self._remote))
        self._sound: set[str] = set()
        self._made: dict[str, SyncEvent] = {}

    def find(self, version: str) -> Version:
        """What a version means now.

        Args:
            version: ``latest``, another reference, a digest or its first digits.

        Raises:
            NotFoundError: there is no such version.
            UnavailableError: the remote does not answer.
        """
        if not isinstance(version, str):
            raise UsageError(f"version={version!r}: pass {LATEST!r} or a digest")
        registry = self._remote or self._space.local
        named = self.ref if version == LATEST else self._space.parse(version, registry)
        digest = registry.resolve(named).digest if isinstance(named, Ref) else Digest(str(named))
        return Version(digest, self._chains().link(digest).after)

    @cached_property
    def source_version(self) -> Version:
        """The source, as a version; reads all of it once."""
        return Version(None, root_of(self.source))

    def is_here(self, version: Version) -> bool:
        """Whether a version was made already."""
        return self._versions.path(version.root).is_dir()

    def event(self, version: Version, apply_s: float) -> SyncEvent:
        """What serving a version took: where this process has made it, with what it fetched and staged for that."""
        assert version.digest is not None  # the source is no version of a link
        made = self._made.get(version.root, SyncEvent(ref=self.ref, digest=version.digest))
        return replace(made, seconds={**made.seconds, "apply": apply_s}, at=datetime.now(UTC))

    @contextmanager
    def opened(self, version: Version, *, check: bool = True) -> Iterator[Checkpoint]:
        """The weights of a version, which is made first where it is not there; waits for a process that makes it.

        Args:
            check: hash a version that this process has not hashed or made; one that was changed is made again.

        Raises:
            NotOnChainError: no links lead to it from the source.
            MissingLinkError: a link is missing.
            CorruptError: a link is damaged.
            WrongCheckpointError: the source is another one than the links say.
            UnavailableError: the remote does not answer.
        """
        if version.digest is None:
            yield self.source
            return
        was_here, checkpoint = self.is_here(version), self._found(version.root, check=check)
        if checkpoint is None:
            with self._locked():
                # A process that has made it meanwhile has checked it.
                checkpoint = self._found(version.root, check=check and was_here)
                if checkpoint is None:
                    self._make(version.digest, version.root)
                    self._versions.prune(version.root, _KEPT)
                    self._made = {root: self._made[root] for root in self._versions.roots() if root in self._made}
                    checkpoint = self._versions.open(version.root)
        with checkpoint:
            yield checkpoint

    def tell(self, served: Version | None) -> None:
        """Tell a service that has the tag which version this process serves; does nothing elsewhere.

        Raises:
            UnavailableError: the service does not answer.
        """
        service = self._remote.store.service if self._remote is not None else None
        if service is not None and served is not None and served.digest is not None:
            service.wait(self.ref, served.digest, 0, own_name())

    def close(self) -> None:
        """Close what was opened; versions stay for other processes and the next start."""
        self._open.close()

    def _registry_at(self, remote: str | None) -> Registry | None:
        if remote is None or "/" not in remote:
            return self._space.remote_to_ask(remote)
        settings = self._space.settings
        known = next((known for known in settings.remotes.values() if known.url == remote.rstrip("/")), None)
        return self._open.enter_context(Registry.remote(known or checked(Remote("run", remote)), settings))

    def _chains(self) -> Chains:
        return Chains([self._space.local, *([self._remote] if self._remote is not None else [])])

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _found(self, root: str, *, check: bool) -> Checkpoint | None:
        with suppress(DataError, NotFoundError), ExitStack() as failed:
            checkpoint = failed.enter_context(self._versions.open(root))
            if not check or root in self._sound or root_of(checkpoint) == root:
                self._sound.add(root)
                failed.pop_all()
                return checkpoint
        return None

    def _make(self, digest: Digest, root: str) -> None:
        chains, problem = self._chains(), None
        for base, checkpoint in self._bases(root):
            with ExitStack() as opened:
                if checkpoint is not self.source:
                    opened.enter_context(checkpoint)
                try:
                    steps = chains.way(self.ref, digest, base)
                except (NotOnChainError, MissingLinkError) as error:
                    problem = error
                    continue
                begun = time.monotonic()
                artifacts, size = self._links.bring(steps)
                fetched = time.monotonic()
                try:
                    self._versions.make(root, checkpoint, artifacts)
                except WrongCheckpointError:
                    if checkpoint is self.source:
                        raise
                    # It was changed after it was written.
                    shutil.rmtree(self._versions.path(base), ignore_errors=True)
                    continue
                seconds = {"fetch": fetched - begun, "stage": time.monotonic() - fetched}
                counts = counts_of(artifact for artifact, _ in artifacts)
                self._made[root] = SyncEvent(ref=self.ref, digest=digest, bytes=size, seconds=seconds, **counts)
                self._links.clear()
                self._sound.add(root)
                return
        assert problem is not None  # the source ends the list, and raises or has no way
        raise problem

    def _bases(self, root: str) -> Iterator[tuple[str, Checkpoint]]:
        for made in self._versions.roots():
            if made != root:
                with suppress(DataError, NotFoundError):
                    yield made, self._versions.open(made)
        yield self.source_version.root, self.source


def tensors_of(checkpoint: Checkpoint) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of a checkpoint by name, in host memory, one after another; safetensors files are mapped."""
    import torch
    from safetensors import safe_open

    from maskreg.live.memory import CODES, DTYPES

    path = checkpoint.path
    if isinstance(checkpoint, SafetensorsCheckpoint) and isinstance(path, Path):
        folder = path if path.is_dir() else path.parent
        for shard in checkpoint.shards:
            with safe_open(folder / shard.file_name, "pt") as file:
                yield from ((info.name, file.get_tensor(info.name)) for info in shard.tensors)
        return
    for name, info in checkpoint.tensors.items():
        bits = torch.from_numpy(checkpoint.read(name, 0, info.numel).view(f"i{info.item_bytes}"))
        yield name, bits.view(CODES[info.item_bytes]).view(DTYPES[info.dtype]).reshape(info.shape)
