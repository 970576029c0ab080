"""The checkpoints of a run: those that a pattern names, in the order of the run, and whether one has changed.

::

    checkpoints_of("out/step-*")     step-100, step-200, step-1000
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from maskreg.bucket import BucketPath, Location, OptionsOf, is_url, located
from maskreg.checkpoint.files import reading
from maskreg.errors import NotFoundError
from maskreg.ref import is_pattern
from maskreg.words import natural

Stamp = tuple[tuple[str, int, str], ...]
"""Path, size and version of each file of a checkpoint, as JSON can hold them."""


def checkpoints_of(pattern: str, options_of: OptionsOf | None = None) -> list[Location]:
    """The checkpoints that a pattern names, step 2 before step 10.

    ``*``, ``?`` and ``[...]`` stand for characters of one name, in any part of the path. Where folders match, files
    that lie beside them do not count; nor does a link to another match, such as ``latest``.
    """
    base, parts = _split(pattern, options_of)
    matches = sorted(_expanded(base, parts), key=lambda path: natural(str(path)))
    folders = [path for path in matches if path.is_dir()]
    paths = _without_links(folders or matches)
    if not paths:
        hint = "quote the pattern, as in 'out/step-*'; or look: ls"
        raise NotFoundError(f"no checkpoint matches {pattern}", hint=hint)
    return paths


def stamp_of(*paths: Location) -> Stamp:
    """What says whether the files of a checkpoint are the same as at another time: paths, sizes, and times or ETags."""
    return tuple(sorted(entry for path in paths for entry in _stamps(path)))


def _split(pattern: str, options_of: OptionsOf | None) -> tuple[Location, list[str]]:
    """The longest path without marks, and the parts that follow it."""
    if is_url(pattern):
        scheme, _, rest = pattern.partition("://")
        bucket, *names = [name for name in rest.split("/") if name]
        plain = next((index for index, name in enumerate(names) if is_pattern(name)), len(names))
        return located("/".join((f"{scheme}://{bucket}", *names[:plain])), options_of), names[plain:]
    parts = Path(pattern).expanduser().parts
    plain = next((index for index, part in enumerate(parts) if is_pattern(part)), len(parts))
    return Path(*parts[:plain]), list(parts[plain:])


def _expanded(base: Location, parts: list[str]) -> Iterator[Location]:
    if not parts:
        if base.exists():
            yield base
        return
    first, *rest = parts
    if not is_pattern(first):
        yield from _expanded(base / first, rest)
    elif base.is_dir():
        for path in base.iterdir():
            # As in a shell, a mark does not stand for the dot of a hidden name.
            if fnmatchcase(path.name, first) and (first.startswith(".") or not path.name.startswith(".")):
                yield from _expanded(path, rest)


def _without_links(paths: list[Location]) -> list[Location]:
    real = {path for path in paths if not (isinstance(path, Path) and path.is_symlink())}
    return [path for path in paths if path in real or path.resolve() not in {other.resolve() for other in real}]


def _stamps(path: Location) -> list[tuple[str, int, str]]:
    with reading(path):
        if not path.exists():
            raise NotFoundError(f"{path}: no such checkpoint")
        # A name can hold any bytes, and JSON only characters.
        return [(ascii(str(file)), *_version(file)) for file in _files(path.absolute())]


def _files(path: Location, above: tuple[Location, ...] = ()) -> Iterator[Location]:
    """The files in a folder and in those below it; ``above`` are the folders that it is in, without links."""
    if not path.is_dir():
        yield path
    elif (real := path.resolve()) not in above:  # a link can lead back up
        for entry in path.iterdir():
            yield from _files(entry, (*above, real))


def _version(file: Location) -> tuple[int, str]:
    if isinstance(file, BucketPath):
        return file.version()
    # A link to nothing counts as a file of the checkpoint; the reader decides whether it matters.
    status = file.stat() if file.exists() else file.lstat()
    return status.st_size, str(status.st_mtime_ns)
