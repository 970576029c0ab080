"""Versions of a run's weights on one machine, each downloaded and decoded once for all processes that serve them.

::

    FOLDER/<64 digits of the root>/    a checkpoint, complete, with the shards of the source
    FOLDER/lock                        held by the process that makes a version; the others wait, and read its result

A version is made from the nearest one that is there, or from the source. Its links are checked leaf by leaf while it is
made. A process that opens a version made by another can hash it first.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.checkpoint.safetensors import SafetensorsCheckpoint
from maskreg.closing import Closing
from maskreg.digest import Digest
from maskreg.disk import make_folder
from maskreg.errors import UsageError
from maskreg.ref import Ref
from maskreg.registry.chains import Chains
from maskreg.workspace.run import Run, own_name
from maskreg.workspace.sync_event import SyncEvent, counts_of
from maskreg.workspace.versions import Versions
from maskreg.workspace.workspace import CheckpointLike, Workspace

if TYPE_CHECKING:
    import torch

LATEST = "latest"
"""The version that the tag points to."""

_KEPT = 2


@dataclass(frozen=True)
class Version:
    """Weights that a link gives.

    Attributes:
        digest: the link.
        root: identity of the weights.
    """

    digest: Digest
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
        with ExitStack() as opened:
            self._run = run = opened.enter_context(Run(ref, remote=remote, workspace=workspace))
            self.ref = run.ref
            self.source = opened.enter_context(run.space.checkpoint(source, side="source"))
            own = f"{run.ref.name}-{Digest.of(f'{run.url} {run.ref}'.encode()).hex[:16]}"
            self.folder = Path(folder) if folder is not None else run.space.root / "sync" / own
            make_folder(self.folder)
            self._open = opened.pop_all()
        self._versions = Versions(run, self.folder, self.source)
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
        run = self._run
        named = run.ref if version == LATEST else run.space.parse(version, run.registry)
        digest = run.registry.resolve(named).digest if isinstance(named, Ref) else Digest(str(named))
        return Version(digest, Chains(run.chains.registries).link(digest).after)

    def is_here(self, version: Version) -> bool:
        """Whether a version was made already."""
        return self._versions.path(version.root).is_dir()

    def event(self, version: Version, apply_s: float) -> SyncEvent:
        """What serving a version took: where this process has made it, with what it fetched and staged for that."""
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
        was_here, checkpoint = self.is_here(version), self._versions.found(version.root, check=check)
        if checkpoint is None:
            with (self.folder / "lock").open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                # A process that has made it meanwhile has checked it.
                checkpoint = self._versions.found(version.root, check=check and was_here)
                if checkpoint is None:
                    self._make(version.digest, version.root)
                    checkpoint = open_checkpoint(self._versions.path(version.root))
        with checkpoint:
            yield checkpoint

    def tell(self, served: Version | None) -> None:
        """Tell a service that has the tag which version this process serves; does nothing elsewhere.

        Raises:
            UnavailableError: the service does not answer.
        """
        service = self._run.service
        if service is not None and served is not None:
            service.wait(self.ref, served.digest, 0, own_name())

    def close(self) -> None:
        """Close what was opened; versions stay for other processes and the next start."""
        self._open.close()

    def _make(self, digest: Digest, root: str) -> None:
        begun = time.monotonic()
        brought = self._versions.make(digest, root)
        self._versions.prune(root, _KEPT)
        here = self._versions.roots()
        self._made = {each: event for each, event in self._made.items() if each in here}
        seconds = {"fetch": brought.at - begun, "stage": time.monotonic() - brought.at}
        counts = counts_of(artifact for artifact, _ in brought.artifacts)
        self._made[root] = SyncEvent(ref=self.ref, digest=digest, bytes=brought.size, seconds=seconds, **counts)
        self._run.clear()


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
