"""Training data: JSON objects, one a line, read where they lie; which of them a step takes follows from its number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.document import parse_object
from maskreg.errors import DataError, FormatError, LimitError, NotFoundError

MAX_LINE_BYTES = 16 << 20
"""The longest record that is read."""


@dataclass(frozen=True)
class Record:
    """One line.

    Attributes:
        place: file and line number, for messages.
        fields: what the line holds.
    """

    place: str
    fields: dict[str, Any]

    def text(self, name: str) -> str:
        """A field that is text.

        Raises:
            FormatError: there is none, or it is something else.
        """
        value = self.fields.get(name)
        if not isinstance(value, str):
            what = "is missing" if value is None else f"is {type(value).__name__}, not text"
            raise FormatError(f"{self.place}: {name!r} {what}")
        return value


@dataclass(frozen=True, eq=False)
class Records:
    """The records of a file, of which only their places are held: 16 bytes each.

    Attributes:
        path: the file.
        lines: int64 ``[n, 2]``: first byte and number of each line that holds a record.
        digest: sha256 of the file.
    """

    path: Path
    lines: npt.NDArray[np.int64]
    digest: str

    @classmethod
    def of(cls, path: Path) -> Records:
        """Find the records of a file; lines of nothing but spaces are left out.

        Raises:
            NotFoundError: there is no such file, or it is a directory.
            DataError: it has no records.
            LimitError: a line is too long.
        """
        places: list[tuple[int, int]] = []
        digest, start = hashlib.sha256(), 0
        try:
            with path.open("rb") as file:
                for number, line in enumerate(_lines(file, path), start=1):
                    digest.update(line)
                    if line.strip():
                        places.append((start, number))
                    start += len(line)
        except (FileNotFoundError, IsADirectoryError) as error:
            what = "a directory" if isinstance(error, IsADirectoryError) else "no such file"
            raise NotFoundError(f"{path}: {what}", hint="--data names a file with one JSON object a line") from error
        if not places:
            raise DataError(f"{path}: no records", hint='write one JSON object a line, such as {"prompt": "..."}')
        return cls(path, np.array(places, np.int64), f"sha256:{digest.hexdigest()}")

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> Record:
        start, number = self.lines[index].tolist()
        with self.path.open("rb") as file:
            file.seek(start)
            return self._parsed(file.readline(), number)

    def __iter__(self) -> Iterator[Record]:
        with self.path.open("rb") as file:
            for start, number in self.lines.tolist():
                file.seek(start)
                yield self._parsed(file.readline(), number)

    def _parsed(self, line: bytes, number: int) -> Record:
        place = f"{self.path}:{number}"
        return Record(place, parse_object(line, place, max_bytes=MAX_LINE_BYTES))


def drawn(records: int, seed: int, *, step: int, batch: int) -> list[int]:
    """Which records a step trains on: each epoch goes through all of them once, in an order of its own.

    Args:
        records: how many there are.
        seed: other seeds give other orders.
        step: from 0.
        batch: records of a step.

    Returns:
        Indices, ``batch`` of them.
    """
    first = step * batch
    orders: dict[int, npt.NDArray[np.int64]] = {}
    found: list[int] = []
    for place in range(first, first + batch):
        epoch, at = divmod(place, records)
        if epoch not in orders:
            orders[epoch] = np.random.default_rng([seed, epoch]).permutation(records)
        found.append(int(orders[epoch][at]))
    return found


def _lines(file: Any, path: Path) -> Iterator[bytes]:
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise LimitError(f"{path}: a line of more than {MAX_LINE_BYTES:,} bytes")
        yield line
