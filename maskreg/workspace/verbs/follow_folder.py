"""Follow with a folder: a checkpoint for each state, and a link to the latest.

::

    DIR/<64 digits of the root>/    a checkpoint, complete, with the files and shards of the source
    DIR/current -> <digits>         replaced by one rename, when the checkpoint is durable
    DIR/.maskreg/<digits>           the checkpoint was changed after it was written
    DIR/.maskreg/lock               held by the process that follows

A process that died leaves an old link, or a checkpoint that no link points to: the next one goes on from where the link
points. It hashes what it finds, or checks what it patches leaf by leaf, so a checkpoint that was changed or damaged is
noticed, and made again from the source.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from maskreg.artifact.reader import Artifact
from maskreg.bucket import BucketPath
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.digest import Digest
from maskreg.disk import make_folder, sync_folder
from maskreg.errors import (
    CannotCreateError,
    DataError,
    MaskregError,
    NotFoundError,
    NotOnChainError,
    OutputExistsError,
    TryAgainError,
    UsageError,
    WrongCheckpointError,
    WrongTargetError,
    prefixed,
)
from maskreg.flow.chain import root_of
from maskreg.flow.versions import Versions
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry.chains import Chains
from maskreg.workspace.verbs.follow import EVERY_S, Follower, Weights
from maskreg.workspace.workspace import CheckpointLike, Workspace

CURRENT = "current"
"""The link to the latest checkpoint."""

_STATE = ".maskreg"


def follow_folder(
    ref: str | Ref,
    out: str | Path,
    source: CheckpointLike,
    *,
    remote: str | None = None,
    every_s: float = EVERY_S,
    keep: int = 2,
    safe: Callable[[], bool] | None = None,
    replica: str | None = None,
    with_code: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> Follower:
    """Keep a folder at what a run publishes under a tag.

    ``out/current`` always points to a complete checkpoint. It is moved by one rename; earlier checkpoints stay for a
    while, so that a server that has one open can go on reading it.

    Args:
        out: the folder; made when there is none.
        source: the checkpoint that the chain began from, or one that any of its links gave.
        remote: where the tag is; by default the default remote, or the local registry where there is none.
        every_s: seconds between two looks at the tag.
        keep: checkpoints that stay, the current one included.
        safe: asked before the link moves; while it says no, links wait.
        replica: what a service shows this follower as; by default the name of the machine and the process id.

    Raises:
        UsageError: a pinned reference, a negative time, a replica's name that is not clean, or nothing is to be kept.
        OutputExistsError: the folder holds other things.
        TryAgainError: another process follows with this folder.
        CannotCreateError: the folder cannot be made.
    """
    if keep < 1:
        raise UsageError(f"keep={keep}: the current checkpoint has to stay")
    folder = _Folder(Path(out), source, keep=keep, with_code=with_code, progress=progress)
    try:
        return Follower(folder, ref, remote=remote, every_s=every_s, safe=safe, replica=replica, workspace=workspace)
    except BaseException:
        folder.close()
        raise


class _Folder(Weights):
    """Checkpoints in a folder, and which of them is the current one."""

    def __init__(self, folder: Path, source: CheckpointLike, *, keep: int, with_code: bool, progress: Progress) -> None:
        self._folder, self._keep, self._with_code, self._progress = folder, keep, with_code, progress
        self._versions = Versions(folder)
        self._open = ExitStack()
        self._state = folder / _STATE
        self._from_source: Checkpoint | None = None
        self._source_root = ""
        # What does not belong to it is not ours to remove later.
        if folder.exists() and not folder.is_dir():
            raise OutputExistsError(folder, reason="and is not a folder", hint="choose another -o")
        if folder.is_dir() and not (folder / _STATE).is_dir() and any(folder.iterdir()):
            raise OutputExistsError(folder, reason="and holds other files", hint="choose another -o")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotCreateError(f"{folder} cannot be made: {error.strerror}") from error
        self._lock()
        # Now, so that a path that is wrong is not waited for.
        with ExitStack() as failed:
            failed.callback(self.close)
            self._source = self._opened_source(source)
            failed.pop_all()

    @property
    def out(self) -> Path | None:
        return self._folder / CURRENT

    def root(self, chains: Chains, head: Digest) -> str:
        current = self._current()
        if current is None:
            raise NotOnChainError(f"{self._folder} has no current checkpoint")
        self._from_source = None
        return current

    def begin_again(self) -> str | None:
        self._from_source = self._source
        self._source_root = self._source_root or root_of(self._source)
        return self._source_root

    def stage(self, artifacts: Sequence[tuple[Artifact, bool]], root: str) -> Callable[[], None]:
        current = self._current()
        if self._from_source is not None or current is None:
            assert self._from_source is not None
            self._write(self._from_source, artifacts, root)
            return partial(self._show, root)
        with self._noticing_change(current, DataError, NotFoundError):
            checkpoint = self._versions.open(current)
        with checkpoint, self._noticing_change(current, WrongCheckpointError, WrongTargetError):
            if artifacts:
                self._write(checkpoint, artifacts, root)
                return partial(self._show, root)
            # The first look of a process; afterwards it knows what it wrote.
            if root_of(checkpoint) != root:
                raise WrongTargetError("its bits are not those that were written")
        return lambda: None

    @contextmanager
    def _noticing_change(self, root: str, *errors: type[MaskregError]) -> Iterator[None]:
        """Remember a changed checkpoint, so that it is made again from the source."""
        try:
            yield
        except errors as error:
            path = self._versions.path(root)
            (self._state / path.name).touch()
            raise TryAgainError(
                f"{path} was changed after it was written, and is made again from the source: {error.message}",
                hint="the same command again",
            ) from error

    def close(self) -> None:
        self._open.close()
        if not os.path.lexists(self._folder / CURRENT):
            # Nothing came of it: what was made for it goes, unless something else is there.
            (self._state / "lock").unlink(missing_ok=True)
            with suppress(OSError):
                self._state.rmdir()
                self._folder.rmdir()

    def _opened_source(self, source: CheckpointLike) -> Checkpoint:
        if not isinstance(source, str | Path | BucketPath):
            return source
        with prefixed("source: "):
            checkpoint = open_checkpoint(source)
        self._open.callback(checkpoint.close)
        return checkpoint

    def _write(self, checkpoint: Checkpoint, artifacts: Sequence[tuple[Artifact, bool]], root: str) -> None:
        self._versions.make(root, checkpoint, artifacts, with_code=self._with_code, progress=self._progress)

    def _show(self, root: str) -> None:
        """Let the link lead to a checkpoint that is complete."""
        name = self._versions.path(root).name
        self._from_source = None
        (self._state / name).unlink(missing_ok=True)
        draft = self._state / f"{CURRENT}-{os.getpid()}"
        draft.unlink(missing_ok=True)
        # Relative to where the link will be, so that the folder can be moved.
        draft.symlink_to(name)
        draft.replace(self._folder / CURRENT)
        sync_folder(self._folder)
        self._versions.prune(root, self._keep)

    def _current(self) -> str | None:
        link = self._folder / CURRENT
        if not link.is_symlink():
            if os.path.lexists(link):
                fault = "and is not the link that follow made"
                raise OutputExistsError(link, reason=fault, hint=f"mv {link} {link}-other")
            return None
        name = str(link.readlink())
        was_changed = (self._state / name).exists()
        return next((root for root in self._versions.roots() if Digest(root).hex == name and not was_changed), None)

    def _lock(self) -> None:
        make_folder(self._state)
        lock = self._open.enter_context((self._state / "lock").open("ab"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._open.close()
            raise TryAgainError(
                f"another process follows with {self._folder}", hint="give each its own folder"
            ) from error
