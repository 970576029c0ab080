"""What an artifact does to the small files beside a checkpoint, and which of them can run code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from maskreg.artifact.layout import FILES
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.files import can_run_code, left_out_note
from maskreg.update.delta import Delta

_TRUST = "can run code where the checkpoint is loaded with trust_remote_code"


@dataclass(frozen=True)
class SmallFiles:
    """What an artifact does to the small files beside its source.

    Attributes:
        code, own_code: what can run code, of the files written and of those copied from the source.
        left_out: files of the artifact that can run code and are not written.
    """

    written: Mapping[str, bytes]
    removed: frozenset[str]
    code: tuple[str, ...]
    own_code: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for people, one sentence each."""
        notes = []
        if self.left_out:
            notes.append(left_out_note(self.left_out))
        if self.code:
            notes.append(f"{', '.join(self.code)} of the artifact {_TRUST}")
        if self.own_code:
            notes.append(f"{', '.join(self.own_code)}, copied from the source, {_TRUST}")
        return tuple(notes)


def small_files_of(delta: Delta, checkpoint: Checkpoint, *, with_code: bool) -> SmallFiles:
    """Decide which small files the result gets. The checkpoint's own code is copied, as everything of its owner is."""
    own = checkpoint.small_files()
    brought = delta.artifact.files(delta.part)
    known = {name: own[name].read_bytes() for name in brought if name in own}
    code = {name for name, data in brought.items() if can_run_code(name, data, known.get(name))}
    written = {name: data for name, data in brought.items() if with_code or name not in code}
    # Reverting drops small files that the target had and the source lacked.
    added = {o.key.removeprefix(FILES) for o in delta.artifact.manifest.objects if o.key.startswith(FILES)}
    removed = frozenset(added) if delta.revert else frozenset()
    copied = sorted(own.keys() - written.keys() - removed)
    return SmallFiles(
        written,
        removed,
        code=tuple(sorted(code & written.keys())),
        own_code=tuple(name for name in copied if can_run_code(name, own[name].read_bytes())),
        left_out=tuple(sorted(code - written.keys())),
    )
