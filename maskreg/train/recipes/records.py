"""Training data: JSON objects, one a line, read where they lie; which of them a step takes follows from its number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.document import parse_object
from maskreg.errors import DataError, FormatError, LimitError, NotFoundError, UsageError

MAX_LINE_BYTES = 16 << 20
"""The longest record that is read."""

_FIELDS = 'opd trains on {"prompt"} or {"messages"}; sft on {"prompt", "completion"}, {"messages"} or {"text"}'
_A_FILE = "--data names a file with one JSON object a line"
_BOM = b"\xef\xbb\xbf"


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
            odd = (
                "is null" if name in self.fields else f"is missing, and there is {', '.join(self.fields) or 'nothing'}"
            )
            what = odd if value is None else f"is {type(value).__name__}, not text"
            raise FormatError(f"{self.place}: {name!r} {what}", hint=_FIELDS)
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
        """Find the records of a file; lines of nothing but spaces are left out, and so is a byte order mark.

        Raises:
            NotFoundError: there is no such file, or it is a directory.
            UsageError: it is a pipe, or a device.
            DataError: it has no records.
            LimitError: a line is too long.
        """
        places: list[tuple[int, int]] = []
        digest, start = hashlib.sha256(), 0
        if not path.exists():
            raise NotFoundError(f"{path}: no such file", hint=_A_FILE)
        if path.is_dir():
            raise NotFoundError(f"{path}: a directory", hint=_A_FILE)
        if not path.is_file():
            raise UsageError(
                f"{path}: neither pipes nor devices can be read, as each step picks its records anew",
                hint="write the records to a file first, and give that to --data",
            )
        with path.open("rb") as file:
            for number, line in enumerate(_lines(file, path), start=1):
                digest.update(line)
                marked = len(_BOM) if number == 1 and line.startswith(_BOM) else 0
                if line[marked:].strip():
                    places.append((start + marked, number))
                start += len(line)
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
        try:
            return Record(place, parse_object(line, place, max_bytes=MAX_LINE_BYTES))
        except FormatError as error:
            raise FormatError(
                error.message, hint=f"one JSON object a line, in UTF-8: sed -n {number}p {self.path}"
            ) from error


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
    places = (divmod(place, records) for place in range(step * batch, (step + 1) * batch))
    return [int(_order(records, seed, epoch)[at]) for epoch, at in places]


@lru_cache(maxsize=2)
def _order(records: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    # Kept from step to step; a step that ends one epoch begins the next.
    return np.random.default_rng([seed, epoch]).permutation(records)


def _lines(file: Any, path: Path) -> Iterator[bytes]:
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise LimitError(f"{path}: a line of more than {MAX_LINE_BYTES:,} bytes", hint=_A_FILE)
        yield line
