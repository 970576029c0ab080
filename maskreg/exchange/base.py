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
        out: the file or folder, absolute.
        tensors: tensors in it.
        coordinates: values in it, or coordinates of its masks.
        bytes: size of its files.
        kept_files: files that were in the output's folder, and that ``force`` left there.
        notes: what the format does not hold of the artifact, and other remarks, one sentence each.
    """

    out: Path
    tensors: int
    coordinates: int
    bytes: int
    kept_files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Values:
    """An update that a format holds, on the source that was given.

    Attributes:
        target: the checkpoint that the update gives, computed and checked while it is read.
        lineage: what maskreg wrote beside it; None in files of other tools.
        notes: remarks, one sentence each.
    """

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
        lineage: what maskreg wrote beside them; None in files of other tools.
        notes: remarks, one sentence each.
    """

    tensors: Mapping[str, BoolBlocks]
    lineage: Lineage | None = None
    notes: tuple[str, ...] = ()


class Reader(Protocol):
    """Opens what a format holds; files stay open until the ``with`` that the caller is in ends."""

    def __call__(self, path: Path, source: Checkpoint, limits: Limits, closing: Callable[[Any], Any]) -> Values | Masks:
        """Open a file or folder, checking everything but the values.

        Args:
            path: a file or folder that exists.
            source: the checkpoint that it belongs to.
            limits: bounds on what is read.
            closing: called with everything that has to be closed at the end.

        Raises:
            DataError: it breaks the format, exceeds a limit or does not fit the source; names the tensor.
            NotFoundError: a part of it is missing.
            ConfigError: an optional package is missing.
        """


@dataclass(frozen=True)
class Format:
    """One line in the table of exchange formats.

    Attributes:
        name: as ``--to`` and ``--from`` take it.
        holds: values, which need the source to be written and read; or a mask.
        accepts: what a path must be to be read, for messages.
        write: writes ``(update, out, force=..., **options)``; :class:`Written`.
        read: see :class:`Reader`.
        options: options of ``write``, with their defaults.
    """

    name: str
    holds: Literal["values", "mask"]
    accepts: str
    write: Callable[..., Written]
    read: Reader
    options: Mapping[str, Any] = field(default_factory=dict)


__all__ = ["BoolBlocks", "Format", "Masks", "Outgoing", "Reader", "Values", "Written"]
