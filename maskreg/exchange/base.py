"""The contract of exchange formats: an artifact written as another tool reads it, and what that tool wrote read back.

A format is one file of this room with two functions, and one line in :data:`maskreg.exchange.FORMATS`. It holds values
or a mask. Values come back as the target checkpoint, computed from the source while it is read; so extraction makes of
it the artifact that it makes of any pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from maskreg.checkpoint.base import Checkpoint
from maskreg.exchange.lineage import Lineage
from maskreg.exchange.outgoing import Outgoing
from maskreg.limits import Limits

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class Written:
    """What a format has written.

    Attributes:
        coordinates: values in it, or coordinates of its masks.
        kept_files: files that were in the output's folder, and that ``force`` left there.
    """

    out: Path
    tensors: int
    coordinates: int
    bytes: int
    kept_files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Values:
    """An update that a format holds, on the source that was given."""

    target: Checkpoint
    lineage: Lineage | None = None
    notes: tuple[str, ...] = ()


BoolBlocks = Callable[[], "Iterator[npt.NDArray[np.bool_]]"]
"""Reads the mask of one tensor: its blocks in order."""


@dataclass(frozen=True)
class Masks:
    """Masks that a format holds, of the source that was given.

    Attributes:
        tensors: what reads the mask of each tensor, by name; a tensor that is not here has no coordinates.
    """

    tensors: Mapping[str, BoolBlocks]
    lineage: Lineage | None = None
    notes: tuple[str, ...] = ()


class Reader(Protocol):
    """Opens what a format holds; files stay open until the ``with`` that the caller is in ends."""

    def __call__(self, path: Path, source: Checkpoint, limits: Limits, closing: Callable[[Any], Any]) -> Values | Masks:
        """Open a file or folder, checking everything but the values.

        Raises:
            DataError: it breaks the format, exceeds a limit or does not fit the source; names the tensor.
        """


@dataclass(frozen=True)
class Format:
    """One line in the table of exchange formats.

    Attributes:
        write: writes ``(update, out, force=..., **options)``; :class:`Written`.
        options: options of ``write``, with their defaults.
    """

    name: str
    holds: Literal["values", "mask"]
    accepts: str
    write: Callable[..., Written]
    read: Reader
    options: Mapping[str, Any] = field(default_factory=dict)


__all__ = ["BoolBlocks", "Format", "Masks", "Outgoing", "Reader", "Values", "Written"]
