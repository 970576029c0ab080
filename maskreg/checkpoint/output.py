"""Atomic outputs: written beside their final path, renamed at the end, repaired after a crash; for every format.

The work is done beside the final path, and a rename makes it visible::

    begin    clean_stale(folder)                 repair what dead processes left
             WORK = .OUT.maskreg-HOST-PID-NONCE  the format writes into it, and syncs it
    commit   link into WORK what OUT holds       (0) only when OUT is replaced: files that WORK does not have
             rename OUT  -> WORK.old             (1)
             rename WORK -> OUT                  (2)
             fsync the folder                    (3)
             remove WORK.old                     (4) what OUT does not have goes back into it first

The names record the process, so the next run can repair what a killed process of this host left::

    killed before (1)       WORK                  -> remove WORK
    between (1) and (2)     WORK, WORK.old        -> remove WORK, rename WORK.old back to OUT
    after (2)               OUT, WORK.old         -> remove WORK.old

So at every moment the old or the new output exists or can be restored, and never a part of either. Other hosts' work is
left alone: on a shared disk no run can tell whether their processes are alive.

A folder can hold more than an output: notes, an optimizer's state. These are linked into the folder that takes its
place; where that cannot be done, they are moved into it. So only files whose names are in the new folder are removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import stat
from dataclasses import dataclass, field
from pathlib import Path

from maskreg.bucket import Location
from maskreg.disk import DirectFile, is_alive, rename_new, require_space, sync_folder
from maskreg.errors import CannotCreateError, OutputExistsError

# What decides which model a folder is: its weights, and what a loader reads of the small files.
_MODEL = re.compile(
    r".+\.safetensors|.+\.index\.json|(.*config|tokenizer.*|vocab.*|special_tokens_map|added_tokens|chat_template.*)\.json"
    r"|vocab.*|merges\.txt|.+\.(jinja|model|tiktoken)|(modeling|configuration|tokenization|processing)_.+\.py",
    re.IGNORECASE | re.DOTALL,
)


def retire(old: Path, new: Path) -> bool:
    """Remove an output that another has replaced; what a new folder lacks goes into it first."""
    if old.is_dir() and not old.is_symlink():
        if not new.is_dir():
            return False
        for entry in sorted(old.iterdir()):
            if not os.path.lexists(new / entry.name):
                rename_new(entry, new / entry.name)
    return remove(old)


_WORK = re.compile(
    r"\.(?P<out>.+)\.maskreg-(?P<host>\w+)-(?P<pid>[1-9][0-9]{0,9})-(?P<nonce>[0-9a-f]{8})(?P<old>\.old)?",
    re.ASCII | re.DOTALL,
)
_OLD = ".old"

# Names of this process's unfinished work. A process number alone does not tell: in a container, a dead predecessor
# often had the same one.
live_work: set[str] = set()


@dataclass
class PendingOutput:
    """An output that appears whole, or not at all. A format creates :attr:`work` and fills it.

    Attributes:
        path: where it appears, absolute; a link of that name is replaced, never followed.
        is_file: it is one file, not a directory.
        weights: pattern of the weight files; only a directory with such a file can be replaced.
        names: files that a directory will have; of folders in it, the name and ``/``.
        sources: resolved paths that it must not replace.
        force: replace an earlier output.
        kept: after a commit, files of the replaced directory that the output does not write; they are in the new one.
        work: the file or directory to write until then.
    """

    path: Path
    is_file: bool
    weights: str
    names: frozenset[str]
    sources: tuple[Location, ...]
    force: bool
    kept: tuple[str, ...] = field(default=(), init=False)
    work: Path = field(init=False)

    def __post_init__(self) -> None:
        # Not resolve(): a link at the output's own path is replaced, and never written through.
        absolute = self.path.expanduser().absolute()
        self.path = absolute.parent.resolve() / absolute.name
        self.work = self.path.parent / f".{self.path.name}.maskreg-{_host()}-{os.getpid()}-{secrets.token_hex(4)}"

    def begin(self, needed_bytes: int) -> None:
        """Check that the output can appear and fits, and make the folder it goes into."""
        self._check()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        clean_stale(self.path.parent)
        # Checked again: the repair might have restored an output that a crash left moved aside.
        self._check()
        require_space(self.path.parent, needed_bytes, what="the checkpoint")
        live_work.add(self.work.name)
        if not self.is_file:
            self.work.mkdir()

    def create(self, name: str) -> DirectFile:
        """A new file of the output; for an output that is one file, its own."""
        return DirectFile(self.work if self.is_file else self.work / name)

    def commit(self) -> None:
        """Make the finished work visible; what it replaces is moved aside first, and removed afterwards."""
        self._check()
        if not self.is_file:
            sync_folder(self.work)
        old = self.work.with_name(self.work.name + _OLD)
        replaces = self.force and os.path.lexists(self.path)  # without force, what has just appeared stays
        if replaces and not self.is_file:
            with contextlib.suppress(FileNotFoundError):
                self.kept = self._others()
            for name in self.kept:
                with contextlib.suppress(OSError):  # what cannot be linked is moved at the end
                    os.link(self.path / name, self.work / name, follow_symlinks=False)
            sync_folder(self.work)
        try:
            if replaces:
                with contextlib.suppress(FileNotFoundError):  # another process replaces it, too
                    self.path.rename(old)
            rename_new(self.work, self.path)
        except BaseException:
            if os.path.lexists(old):
                with contextlib.suppress(OSError):  # what cannot be repaired is left to the next run
                    if os.path.lexists(self.path):
                        retire(old, self.path)
                    else:
                        old.rename(self.path)
            raise
        sync_folder(self.path.parent)
        if replaces:
            # The output is complete; what could not be removed is left to the next run.
            with contextlib.suppress(OSError):
                retire(old, self.path)

    def discard(self) -> None:
        """Remove unfinished work; do nothing after a commit."""
        # Must not hide the original error; the next run removes what stays.
        with contextlib.suppress(OSError):
            remove(self.work)
        live_work.discard(self.work.name)

    def _check(self) -> None:
        out = self.path
        if out.name in ("", ".."):
            raise CannotCreateError(f"{out}: not a name for an output")
        if not os.path.lexists(out):
            return
        if not self.force:
            raise OutputExistsError(out)
        real = Path(os.path.realpath(out))  # resolve() is a RuntimeError for links in a circle
        for source in (path for path in self.sources if isinstance(path, Path)):
            if real == source or real in source.parents or source in real.parents:
                raise CannotCreateError(
                    f"{out}: replacing it would destroy the source {source}", hint="choose another output"
                )
        reason = ""
        with contextlib.suppress(FileNotFoundError):
            reason = "" if out.is_symlink() else self._foreign()
        if reason:
            raise CannotCreateError(
                f"{out}: {reason}, so it is never replaced", hint="move it away, or choose another output"
            )

    def _foreign(self) -> str:
        """Why the thing at ``path`` cannot be an earlier output; empty when it can."""
        mode = self.path.lstat().st_mode
        if self.is_file:
            return "" if stat.S_ISREG(mode) else "not a regular file"
        if not stat.S_ISDIR(mode):
            return "not a directory"
        entries = list(self.path.iterdir())
        folders = sorted(entry.name for entry in entries if entry.is_dir() and f"{entry.name}/" not in self.names)
        if folders:
            return f"a directory with others inside ({', '.join(folders[:3])})"
        if entries and not any(entry.match(self.weights) for entry in entries):
            return f"a directory of files without {self.weights}"
        if strays := [name for name in self._others() if _MODEL.fullmatch(name)]:
            return f"files of another checkpoint would stay beside the new one ({', '.join(strays[:3])})"
        return ""

    def _others(self) -> tuple[str, ...]:
        if not self.path.is_dir() or self.path.is_symlink():
            return ()
        known = {name.removesuffix("/") for name in self.names}
        return tuple(sorted(entry.name for entry in self.path.iterdir() if entry.name not in known))


def clean_stale(folder: Path) -> tuple[Path, ...]:
    """Repair what dead processes of this host left in a folder; see the table at the top of this file."""
    repaired: list[Path] = []
    for path in sorted(folder.glob(".*.maskreg-*")):
        match = _WORK.fullmatch(path.name)
        if not match or match["host"] != _host() or _is_live(path.name, int(match["pid"])):
            continue
        out = folder / match["out"]
        # Another run might be cleaning too, and in a shared folder not everything is ours to touch.
        with contextlib.suppress(OSError):
            if match["old"] and not os.path.lexists(out):
                path.rename(out)
                repaired.append(out)
            elif retire(path, out) if match["old"] else remove(path):
                repaired.append(path)
    return tuple(repaired)


def remove(path: Path) -> bool:
    """Remove unfinished work: a file, a link, or a directory with all it holds."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    return True


def _is_live(name: str, pid: int) -> bool:
    if pid == os.getpid():
        return name.removesuffix(_OLD) in live_work
    return is_alive(pid)


def _host() -> str:
    return re.sub(r"\W", "_", socket.gethostname(), flags=re.ASCII) or "localhost"
