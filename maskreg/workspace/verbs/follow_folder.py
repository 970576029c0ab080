"""Follow with a folder: a checkpoint for each state, and a link to the latest.

::

    DIR/<64 digits of the root>/    a checkpoint, complete, with the files and shards of the source
    DIR/current -> <digits>         replaced by one rename, when the checkpoint is durable
    DIR/.maskreg/lock               held by the process that follows

A process that died leaves an old link, or a checkpoint that no link points to: the next one goes on from what is there.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from maskreg.digest import Digest
from maskreg.disk import make_folder, sync_folder
from maskreg.errors import CannotCreateError, OutputExistsError, TryAgainError, UsageError
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.workspace.run import Brought, Run
from maskreg.workspace.verbs.follow import Follower, FollowOptions, Weights, following
from maskreg.workspace.versions import Versions
from maskreg.workspace.workspace import CheckpointLike

CURRENT = "current"
"""The link to the latest checkpoint."""

_STATE = ".maskreg"


def follow_folder(
    ref: str | Ref,
    out: str | Path,
    source: CheckpointLike,
    *,
    keep: int = 2,
    with_code: bool = False,
    progress: Progress = SILENT,
    **options: Unpack[FollowOptions],
) -> Follower:
    """Keep a folder at what a run publishes under a tag.

    ``out/current`` always points to a complete checkpoint. It is moved by one rename; earlier checkpoints stay for a
    while, so that a server that has one open can go on reading it.

    Args:
        out: the folder; made when there is none.
        source: the checkpoint that the chain began from, or one that any of its links gave.
        keep: checkpoints that stay, the current one included.

    Raises:
        UsageError: a pinned reference, or nothing is to be kept.
        OutputExistsError: the folder holds other things.
        TryAgainError: another process follows with this folder.
    """
    if keep < 1:
        raise UsageError(f"keep={keep}: the current checkpoint has to stay")
    how: Any = {"keep": keep, "with_code": with_code, "progress": progress}
    return following(lambda run: _Folder(run, Path(out), source, **how), ref, options)


class _Folder(Weights):
    """Checkpoints in a folder, and which of them is the current one."""

    def __init__(self, run: Run, folder: Path, source: CheckpointLike, *, keep: int, **how: Any) -> None:
        self._folder, self._keep, self._state = folder, keep, folder / _STATE
        self.out = self._link = folder / CURRENT
        self._open = ExitStack()
        try:
            names = [file.name for file in folder.iterdir()]
        except FileNotFoundError:
            names = []
        except NotADirectoryError as error:
            raise OutputExistsError(folder, reason="and is not a folder", hint="choose another output") from error
        # What does not belong to it is not ours to remove later.
        if names and _STATE not in names:
            raise OutputExistsError(folder, reason="and holds other files", hint="choose another output")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotCreateError(f"{folder} cannot be made: {error.strerror}") from error
        self._lock()
        # Now, so that a path that is wrong is not waited for.
        with ExitStack() as failed:
            failed.callback(self.close)
            checkpoint = self._open.enter_context(run.space.checkpoint(source, side="source"))
            failed.pop_all()
        self._versions = Versions(run, folder, checkpoint, **how)

    def stage(self, run: Run, head: Digest, root: str) -> tuple[Brought, Callable[[], None]]:
        if os.path.lexists(self._link) and not self._link.is_symlink():
            fault = "and is not the link that follow made"
            raise OutputExistsError(self._link, reason=fault, hint=f"mv {self._link} {self._link}-other")
        if (checkpoint := self._versions.found(root)) is None:
            return self._versions.make(head, root), partial(self._show, root)
        checkpoint.close()
        return Brought([], 0, time.monotonic()), partial(self._show, root)

    def close(self) -> None:
        if not os.path.lexists(self._link):
            # Nothing came of it: what was made for it goes, the lock while it is held, unless something else is there.
            (self._state / "lock").unlink(missing_ok=True)
            with suppress(OSError):
                self._state.rmdir()
                self._folder.rmdir()
        self._open.close()

    def _show(self, root: str) -> None:
        """Let the link lead to a checkpoint that is complete."""
        draft = self._state / f"{CURRENT}-{os.getpid()}"
        draft.unlink(missing_ok=True)
        # Relative to where the link will be, so that the folder can be moved.
        draft.symlink_to(self._versions.path(root).name)
        draft.replace(self._link)
        sync_folder(self._folder)
        self.root = root
        self._versions.prune(root, self._keep)

    def _lock(self) -> None:
        path = self._state / "lock"
        try:
            make_folder(self._state)
            lock = self._open.enter_context(path.open("ab"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_held = os.path.samestat(os.fstat(lock.fileno()), path.stat())
        except (BlockingIOError, FileNotFoundError):
            is_held = False
        if not is_held:  # or a process of which nothing came has just removed it
            self._open.close()
            raise TryAgainError(f"another process follows with {self._folder}", hint="give each its own folder")
