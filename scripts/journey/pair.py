"""The checkpoints that the repository ships for the demo, and the digests of their files.

``demo/`` holds what ``scripts/demo --train demo`` wrote; ``SHA256SUMS`` in it names every other file but the README,
as ``sha256sum --check`` reads it.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

SHIPPED = Path(__file__).parents[2] / "demo"

PARTS = ("source", "teacher", "target", "target-seed1", "prompts.jsonl")
"""What a pair consists of: three checkpoints and a second target, and the prompts of the distillation."""

SUMS = "SHA256SUMS"


class DamagedPairError(Exception):
    """A folder does not hold the pair that its digests describe."""


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a pair, by its path in ``folder``, sorted."""
    files = [path for part in PARTS for path in _files(folder / part)]
    return {path.relative_to(folder).as_posix(): digest(path) for path in sorted(files)}


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def seal(folder: Path) -> None:
    """Write the digests of a pair beside it."""
    lines = [f"{value}  {name}\n" for name, value in digests(folder).items()]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def sealed(folder: Path) -> dict[str, str]:
    """The digests that stand beside a pair, by file."""
    lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    return {name: value for value, name in (line.split("  ", 1) for line in lines)}


def copy(folder: Path, out: Path) -> None:
    """Copy a pair into ``out``, in place of an earlier one.

    Raises:
        DamagedPairError: a file is missing, changed or unknown.
    """
    if not (folder / SUMS).is_file():
        raise DamagedPairError(f"{folder} holds no pair: it lacks {SUMS}")
    expected, actual = sealed(folder), digests(folder)
    wrong = sorted(name for name in expected | actual if expected.get(name) != actual.get(name))
    if wrong:
        raise DamagedPairError(f"{folder} is not as it was written: {', '.join(wrong)}")
    for part in PARTS:
        remove(out / part)
        if (folder / part).is_dir():
            shutil.copytree(folder / part, out / part)
        else:
            shutil.copyfile(folder / part, out / part)


def remove(path: Path) -> None:
    """Delete a file or a folder, if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return [entry for entry in path.rglob("*") if entry.is_file()]
    return [path] if path.exists() else []
