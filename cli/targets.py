"""Whether a result may be written where somebody wants it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from maskreg.errors import CannotCreateError, OutputExistsError

NO_PLACE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
"""Errors that say that nothing can be created under such a path."""


def occupied(path: Path) -> bool:
    """Whether something has that name, a link to nothing included.

    Raises:
        CannotCreateError: nothing can ever have it.
    """
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in NO_PLACE:
            raise CannotCreateError(f"{path}: {error.strerror}", hint="choose another name") from error
        raise
    return True


def must_be_a_file(path: Path) -> None:
    """Refuse to put a file in the place of anything else: a directory, a link, a pipe, a device.

    Raises:
        OutputExistsError: something else has the name.
    """
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OutputExistsError(f"{path} is not a regular file and stays as it is", hint="choose another name")


@contextmanager
def whole_file(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """A file to write that appears under its name when it is whole, and not at all when writing fails.

    Args:
        path: what it will be called.
        force: replace a file that exists.

    Raises:
        OutputExistsError: it exists, or something that is no file has the name.
        CannotCreateError: nothing can have that name.
    """
    if occupied(path):
        must_be_a_file(path)
        if not force:
            raise OutputExistsError(f"{path} exists already", hint="choose another name, or add --force")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        if error.filename != str(draft) or error.errno not in NO_PLACE:
            raise
        missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        why = f"there is no directory {path.parent}" if missing else error.strerror
        raise CannotCreateError(f"{path}: {why}") from error
    finally:
        with suppress(OSError):
            draft.unlink()
