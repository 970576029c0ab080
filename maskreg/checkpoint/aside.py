"""Replacing the files that an output writes in a folder, and no others.

A folder may hold more than an output: notes, an optimizer's state. These are linked into the folder that takes its
place. What a replaced folder holds is removed only if its name is one that was written again; the names stand beside
it until that is done, for the run that comes after a crash::

    in the folder: model config notes.txt      written now: model config
    -> model and config are replaced, notes.txt is in the new folder too
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

from maskreg.disk import rename_new
from maskreg.document import canonical, parse
from maskreg.errors import DataError

_MAX_BYTES = 16 << 20
# What decides which model a folder is: its weights, and what a loader reads of the small files.
_MODEL = re.compile(
    r".+\.safetensors|.+\.index\.json|(.*config|tokenizer.*|vocab.*|special_tokens_map|added_tokens|chat_template.*)\.json"
    r"|vocab.*|merges\.txt|.+\.(jinja|model|tiktoken)|(modeling|configuration|tokenization|processing)_.+\.py",
    re.IGNORECASE | re.DOTALL,
)


def others_in(folder: Path, written: Collection[str]) -> tuple[str, ...]:
    """Names in a folder that an output does not write, in order; of those written, folders end in ``/``."""
    known = {name.removesuffix("/") for name in written}
    return tuple(sorted(entry.name for entry in folder.iterdir() if entry.name not in known))


def is_of_a_model(name: str) -> bool:
    """Whether a file of this name beside a new output would be taken for a part of it."""
    return bool(_MODEL.fullmatch(name))


def carry(names: Iterable[str], folder: Path, new: Path) -> None:
    """Link files of a folder into the one that takes its place; what cannot be linked is left to :func:`retire`."""
    for name in names:
        with contextlib.suppress(OSError):
            os.link(folder / name, new / name, follow_symlinks=False)


def write_names(path: Path, names: Iterable[str]) -> None:
    """Write down, durably, which files an output replaces."""
    with path.open("xb") as file:
        file.write(canonical(sorted(names)))
        file.flush()
        os.fsync(file.fileno())


def retire(old: Path, new: Path, names: Path) -> bool:
    """Remove a folder that another has replaced; files that were not written again go into the new one.

    Args:
        old: the replaced folder.
        new: the one in its place.
        names: what :func:`write_names` wrote.

    Returns:
        Whether ``old`` is gone; False when nobody knows what was replaced, and nothing was touched.
    """
    try:
        written = parse(names.read_bytes(), names.name, max_bytes=_MAX_BYTES)
    except (OSError, DataError):
        return False
    if not isinstance(written, list) or not new.is_dir():
        return False
    for entry in sorted(old.iterdir()):
        if f"{entry.name}/" in written and entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name in written and not entry.is_dir():
            entry.unlink()
        else:
            _give_back(entry, new)
    old.rmdir()
    return True


def _give_back(entry: Path, folder: Path) -> None:
    target = folder / entry.name
    if os.path.lexists(target):
        if os.path.samestat(entry.lstat(), target.lstat()):
            entry.unlink()  # it was carried
            return
        # Changed on both sides of a crash: keep both.
        target = folder / f"{entry.name}.before-{os.urandom(4).hex()}"
    rename_new(entry, target)
