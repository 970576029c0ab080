"""The target of an update that another tool wrote: the source, patched and checked while it is read."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from maskreg.bucket import Location
from maskreg.checkpoint.base import Checkpoint, expect
from maskreg.closing import Closing
from maskreg.digest import FINGERPRINT_BYTES, LEAF_NUMEL, fingerprint, leaf_hashes
from maskreg.errors import CorruptError
from maskreg.tensors.info import TensorInfo
from maskreg.tensors.leaves import leaf_count

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.checkpoint.base import Memory
    from maskreg.digest import LeafHashes


OTHER_VALUES = "give the source checkpoint that the update was made on, or copy the update again"
"""The next step where patching gives other values than the update records."""


class Patch(Protocol):
    """What becomes of one tensor. Safe to use from several threads."""

    def apply(self, start: int, stop: int, values: npt.NDArray[Any]) -> None:
        """Turn elements ``[start, stop)`` of the source into those of the target, in place.

        Raises:
            DataError: the file is damaged; names the tensor.
        """


class PatchedCheckpoint(Closing):
    """A checkpoint with some tensors patched; see :class:`maskreg.checkpoint.base.Checkpoint`.

    Attributes:
        path: of the update.
        hub: its hub id, where it is known.
        tensors: those of the source.
    """

    def __init__(
        self,
        source: Checkpoint,
        patches: Mapping[str, Patch],
        *,
        path: Location,
        hub: str = "",
        files: Mapping[str, Location] | None = None,
        checks: Mapping[str, str] | None = None,
    ) -> None:
        """Patch a checkpoint.

        Args:
            source: the checkpoint, which stays open as long as this one is read.
            patches: by tensor name.
            path: of the update, for messages.
            hub: its hub id, where it is known.
            files: the small files; by default those of the source.
            checks: fingerprints that tensors must turn out to have. Each is compared when the last of its leaves has
                been read, so a reader that goes through a tensor once has it checked.
        """
        self.format = source.format
        self.path, self.hub, self.tensors = path, hub, source.tensors
        self._source, self._patches = source, patches
        self._files = source.small_files() if files is None else files
        self._checks = {name: _Check(self.tensors[name], text) for name, text in (checks or {}).items()}

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor; see :meth:`maskreg.checkpoint.base.Checkpoint.read`."""
        values = self._source.read(name, start, stop, into)
        if (patch := self._patches.get(name)) is not None:
            # A source that has its values in memory gives those, and they are not ours to change.
            if into is None or values.ctypes.data != into.ctypes.data:
                values = values.copy()
            patch.apply(start, stop, values)
        if (check := self._checks.get(name)) is not None:
            check.add(start, stop, values)
        return values

    def expect(self, name: str, start: int, stop: int) -> int:
        """Hand on what is read soon; see :class:`maskreg.checkpoint.base.Expecting`."""
        return expect(self._source, name, start, stop)

    def small_files(self) -> Mapping[str, Location]:
        """Config, tokenizer and license files: name to path."""
        return self._files

    def other_weights(self) -> tuple[str, ...]:
        """None."""
        return ()

    def close(self) -> None:
        """Do nothing: whoever opened the source closes it."""


class _Check:
    """Collects the leaves of a tensor, from several threads, until its fingerprint is known.

    ::

        add(0, 4M)      leaves 0..15 of 20
        add(4M, 5M)     leaves 16..19: all are here, and their fingerprint is compared
    """

    def __init__(self, info: TensorInfo, expected: str) -> None:
        self._info = info
        self._expected = expected
        self._leaves: dict[int, LeafHashes] = {}
        self._missing = leaf_count(info.numel)
        self._lock = threading.Lock()

    def add(self, start: int, stop: int, values: npt.NDArray[Any]) -> None:
        # Only whole leaves, each once: tied tensors are looked at before they are read.
        if start % LEAF_NUMEL or (stop % LEAF_NUMEL and stop != self._info.numel):
            return
        leaves = leaf_hashes(values)
        with self._lock:
            if start in self._leaves:
                return
            self._leaves[start] = leaves
            self._missing -= len(leaves)
            if self._missing:
                return
        import numpy as np

        parts = [self._leaves[key] for key in sorted(self._leaves)]
        whole = np.concatenate(parts) if parts else np.empty((0, FINGERPRINT_BYTES), np.uint8)
        if fingerprint(whole) != self._expected:
            raise CorruptError(
                f"tensor {self._info.name}",
                "does not match its checksum",
                hint=OTHER_VALUES,
            )
