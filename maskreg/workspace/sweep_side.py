"""One side of the comparisons of a sweep: read again and again, and known by the files that it was when it was opened.

A file that is open stays what it was when another one is renamed to its place. So what says which files are read is
looked up before they are opened, and again after each comparison::

    stamp -> open -> compare with 1 -> the same stamp: a note of 1
                     compare with 2 -> another stamp:  no note of 2; opened anew for 3

What lies in a bucket is read in the version that was stamped, or not at all.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property

from maskreg.bucket import BucketPath, Location
from maskreg.checkpoint.ahead import HeldCheckpoint
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.layouts import is_adapter
from maskreg.checkpoint.run import Stamp, stamp_of
from maskreg.closing import Closing
from maskreg.errors import NotFoundError
from maskreg.workspace.workspace import Workspace

HELD_BYTES = 4 << 30
"""Memory for what a sweep reads again from a bucket; never more than a quarter of the machine's."""


def room_of(onto_previous: bool) -> int:
    """Bytes of memory for each side that is read again.

    Args:
        onto_previous: each target is the next source, so that two are held at a time.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(HELD_BYTES, machine // 4) // (2 if onto_previous else 1)


class SweepSide(Closing):
    """A checkpoint of a sweep, opened when it is first read.

    Attributes:
        path: where it lies.
    """

    def __init__(
        self,
        workspace: Workspace,
        path: Location,
        side: str,
        *,
        room: int = 0,
        opened: Checkpoint | None = None,
        base: SweepSide | None = None,
        download: bool = False,
    ) -> None:
        """Read nothing yet.

        Args:
            workspace: whose settings open it.
            path: where it lies.
            side: what it is, such as ``target``; begins the message when it cannot be opened.
            room: bytes of memory; a checkpoint in a bucket that fits is read from there once.
            opened: the checkpoint, where a caller has opened it, and will close it.
            base: the model that an adapter was trained on, where the one that it names is not here.
            download: fetch a base model from the hub that is not in the cache.
        """
        self.path = path
        self._workspace, self._side, self._given = workspace, side, opened
        self._base, self._download, self._room = base, download, room
        self._release = ExitStack()

    @cached_property
    def stamp(self) -> Stamp | None:
        """The files that it is made of, as they were before they were opened; None where a caller has opened it.

        Raises:
            NotFoundError: there is no such checkpoint.
            DataError: an adapter whose base model cannot be told.
        """
        return self._stamp()

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The open checkpoint.

        Raises:
            NotFoundError, DataError: it cannot be read.
        """
        _ = self.stamp  # before it is opened
        opened = self._release.enter_context(self._open())
        fits = sum(info.nbytes for info in opened.tensors.values()) <= self._room
        # The system holds files of a disk by itself; a copy beside its own was measured to save nothing.
        far = isinstance(self.path, BucketPath) and self._given is None
        return self._release.enter_context(HeldCheckpoint(opened)) if far and fits else opened

    def close(self) -> None:
        """Close it. What is read later is what lies there then."""
        self._release.close()
        for name in ("stamp", "checkpoint"):
            vars(self).pop(name, None)

    def has_changed(self) -> bool:
        """Whether its files are others than those that were opened, or gone."""
        try:
            return self._stamp() != self.stamp
        except NotFoundError:
            return True

    def _stamp(self) -> Stamp | None:
        if self._given is not None:
            return None
        if not is_adapter(self.path):
            return stamp_of(self.path)
        # Only who opens it knows its base model.
        with self._open() as adapter:
            locations = adapter.locations()
        return stamp_of(*locations)

    def _open(self) -> AbstractContextManager[Checkpoint]:
        base = self._base.checkpoint if self._base is not None and is_adapter(self.path) else None
        spec = self.path if self._given is None else self._given
        return self._workspace.checkpoint(spec, side=self._side, base=base, download=self._download)
