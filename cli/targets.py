"""Whether a result may be written where somebody wants it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

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
