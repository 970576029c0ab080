"""Where an output goes: what may stand there, how it appears at once, and how a crash is repaired.

Work happens beside the output, in ``.<OUT>.maskreg-<host>-<pid>-<nonce>``. What an output replaces is first
moved to that name with ``.old`` behind it. Both names tell who was at work, so the next run can clean up.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
from pathlib import Path

from maskreg.disk import is_alive, rename_new, sync_folder
from maskreg.errors import CannotCreateError, OutputExistsError

_WORK = re.compile(
    r"\.(?P<out>.+)\.maskreg-(?P<host>\w+)-(?P<pid>[1-9][0-9]{0,9})-(?P<nonce>[0-9a-f]{8})(?P<old>\.old)?",
    re.ASCII | re.DOTALL,
)
_ASIDE = ".old"

# Names of this process's unfinished work: in a container, a dead predecessor may have had the same pid.
_live: set[str] = set()


def check_out(out: Path, *, is_file: bool, source: tuple[Path, ...], force: bool) -> None:
    """See that an output may appear at ``out``.

    Args:
        out: absolute.
        is_file: the output is one file, not a directory.
        source: resolved paths that must survive.
        force: what stands there may be replaced, if it looks like a checkpoint.

    Raises:
        OutputExistsError: something is there, and ``force`` is False.
        CannotCreateError: what is there must not be replaced.
    """
    if out.name in ("", ".."):
        raise CannotCreateError(f"{out}: not a place for an output")
    if not os.path.lexists(out):
        return
    if not force:
        raise OutputExistsError(f"{out}: exists already", hint="choose another -o, or add --force to replace it")
    real = out.resolve()
    for path in source:
        if real == path or real in path.parents or path in real.parents:
            raise CannotCreateError(f"{out}: replacing it would destroy the source {path}", hint="choose another -o")
    fault = "" if out.is_symlink() else _not_ours(out, is_file)
    if fault:
        raise CannotCreateError(
            f"{out}: {fault}, so --force will not replace it", hint="move it away, or choose another -o"
        )


def work_path(out: Path) -> Path:
    """A fresh name beside ``out``, known as this process's until :func:`forget`."""
    name = f".{out.name}.maskreg-{_host()}-{os.getpid()}-{secrets.token_hex(4)}"
    _live.add(name)
    return out.parent / name


def forget(work: Path) -> None:
    """The work under this name is finished or given up; :func:`clean_stale` may remove what is left."""
    _live.discard(work.name)


def commit(work: Path, out: Path) -> None:
    """Let finished work appear at ``out``; what stands there is moved aside first, and removed after.

    Raises:
        OutputExistsError: somebody else's output appeared there in between.
    """
    aside = work.with_name(work.name + _ASIDE)
    replaces = os.path.lexists(out)
    try:
        if replaces:
            out.rename(aside)
        rename_new(work, out)
    except BaseException:
        if os.path.lexists(aside) and not os.path.lexists(out):
            aside.rename(out)
        raise
    sync_folder(out.parent)
    if replaces:
        # The output is there already; what could not be removed is left to the next run.
        with contextlib.suppress(OSError):
            remove(aside)


def clean_stale(parent: Path) -> tuple[Path, ...]:
    """Repair what dead processes of this host left in a directory.

    Unfinished work is removed. An output that was moved aside is moved back when its replacement never came,
    and removed when it did.

    Returns:
        The paths that were removed or brought back.
    """
    done: list[Path] = []
    for path in sorted(parent.glob(".*.maskreg-*")):
        found = _WORK.fullmatch(path.name)
        if not found or found["host"] != _host() or _is_live(path.name, int(found["pid"])):
            continue
        out = parent / found["out"]
        # Another run may be cleaning too, and in a shared directory not everything is ours to touch.
        with contextlib.suppress(OSError):
            if found["old"] and not os.path.lexists(out):
                path.rename(out)
                done.append(out)
            else:
                remove(path)
                done.append(path)
    return tuple(done)


def remove(path: Path) -> None:
    """Remove a file, a link, or a directory with all it holds."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _not_ours(out: Path, is_file: bool) -> str:
    """Why what stands at ``out`` cannot be an earlier output; empty when it can."""
    if is_file:
        return "" if out.is_file() else "not a regular file"
    if not out.is_dir():
        return "not a directory"
    inside = list(out.iterdir())
    folders = sorted(path.name for path in inside if path.is_dir())
    if folders:
        return f"a directory with others inside ({', '.join(folders[:3])})"
    if inside and not any(path.suffix == ".safetensors" for path in inside):
        return "a directory with files but no safetensors weights"
    return ""


def _is_live(name: str, pid: int) -> bool:
    if pid == os.getpid():
        return name.removesuffix(_ASIDE) in _live
    return is_alive(pid)


def _host() -> str:
    return re.sub(r"\W", "_", socket.gethostname(), flags=re.ASCII) or "localhost"
