"""Checkpoints of a run in one folder, each complete and named by the digits of its root.

A checkpoint is made from the nearest one that is there, or from the source. Its links are checked leaf by leaf while it
is made, and what another process made is hashed before it is used: one that was changed is made again.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path

from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.digest import Digest
from maskreg.disk import preload
from maskreg.errors import DataError, MissingLinkError, NotFoundError, NotOnChainError, WrongCheckpointError
from maskreg.flow.chain import Chained, root_of, write_weights
from maskreg.progress import SILENT, Progress
from maskreg.workspace.run import Brought, Run

_NAME = re.compile(r"[0-9a-f]{64}")


class Versions:
    """The checkpoints in a folder. Other files in it are left alone."""

    def __init__(
        self, run: Run, folder: Path, source: Checkpoint, *, with_code: bool = False, progress: Progress = SILENT
    ) -> None:
        """``source``: the checkpoint that the run began from, or one that any of its links gave."""
        self.folder, self.source = folder, source
        self._run, self._with_code, self._progress = run, with_code, progress
        self._sound, self._changed = set[str](), set[str]()

    @cached_property
    def source_root(self) -> str:
        """The identity of the source; reads all of it once."""
        return root_of(self.source)

    def path(self, root: str) -> Path:
        """Where the checkpoint with this identity is, or would be."""
        return self.folder / Digest(root).hex

    def roots(self) -> list[str]:
        """The identities that the names say, the latest first."""
        paths = [path for path in self.folder.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
        return [f"sha256:{path.name}" for path in sorted(paths, key=lambda path: -path.stat().st_mtime_ns)]

    def found(self, root: str, *, check: bool = True) -> Checkpoint | None:
        """The checkpoint that is there; None without one, or where it was changed.

        Args:
            check: hash one that this process has not hashed or made.
        """
        with suppress(DataError, NotFoundError), ExitStack() as failed:
            checkpoint = failed.enter_context(open_checkpoint(self.path(root)))
            if not check or root in self._sound or root_of(checkpoint) == root:
                self._sound.add(root)
                failed.pop_all()
                return checkpoint
            self._note_changed(root)
        return None

    def make(self, head: Digest, root: str) -> Brought:
        """Write the checkpoint that an artifact gives, of this identity: whole, or not at all.

        Raises:
            NotOnChainError, MissingLinkError: no links lead to it from the source.
            CorruptError: a link is damaged.
            WrongCheckpointError: the source is another one than the links say.
        """
        problem = None
        for base, checkpoint in self._bases(root):
            with ExitStack() as opened:
                if checkpoint is not self.source:
                    opened.enter_context(checkpoint)
                try:
                    brought = self._run.bring(head, base)
                except (NotOnChainError, MissingLinkError) as error:
                    problem = error
                    continue
                try:
                    self._write(root, checkpoint, brought)
                except WrongCheckpointError:
                    if checkpoint is self.source:
                        raise
                    self._changed.add(base)
                    self._note_changed(base)
                    continue
                self._changed.discard(root)
                self._sound.add(root)
                return brought
        assert problem is not None  # the source ends the list, and raises or has no way
        raise problem

    def prune(self, root: str, keep: int) -> None:
        """Delete all but this checkpoint and the latest others, ``keep`` in all; open files can be read on."""
        others = [other for other in self.roots() if other not in self._changed and other != root]
        for other in {*self._changed, *others[keep - 1 :]}:
            shutil.rmtree(self.path(other), ignore_errors=True)
        self._changed.clear()

    def _note_changed(self, root: str) -> None:
        self._run.space.note(f"{self.path(root)} was changed after it was written, and is made again")

    def _write(self, root: str, base: Checkpoint, brought: Brought) -> None:
        weights = Chained(base, brought.artifacts, with_code=self._with_code) if brought.artifacts else base
        path = self.path(root)
        if path.is_dir() and not path.is_symlink() and not any(path.glob("*.safetensors")):
            shutil.rmtree(path)  # its weights were deleted, and a folder without any is not replaced
        write_weights(weights, base, path, self._progress)
        for weights_file in path.glob("*.safetensors"):
            preload(weights_file)  # a reader is going to load it

    def _bases(self, root: str) -> Iterator[tuple[str, Checkpoint]]:
        for made in self.roots():
            if made != root and made not in self._changed:
                with suppress(DataError, NotFoundError):
                    yield made, open_checkpoint(self.path(made))
        yield self.source_root, self.source
