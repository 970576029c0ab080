"""Training data: one JSON object per line, read on demand; which ones a step takes follows from its number."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.document import parse_object
from maskreg.errors import DataError, FormatError, LimitError, NotFoundError, UsageError

MAX_LINE_BYTES = 16 << 20
"""Of a record."""

_FIELDS = 'opd trains on {"prompt"} or {"messages"}; sft on {"prompt", "completion"}, {"messages"} or {"text"}'
_A_FILE = "--data takes a file with one JSON object per line"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Record:
    """One line.

    Attributes:
        location: file and line number, for messages.
        fields: the JSON object.
    """

    location: str
    fields: dict[str, Any]

    def text(self, name: str) -> str:
        """A text field."""
        value = self.fields.get(name)
        if not isinstance(value, str):
            if value is not None:
                fault = f"is {type(value).__name__}, not text"
            elif name in self.fields:
                fault = "is null"
            else:
                fault = f"is missing; the record has {', '.join(self.fields) or 'no fields'}"
            raise FormatError(f"{self.location}: {name!r} {fault}", hint=_FIELDS)
        return value


@dataclass(frozen=True, eq=False)
class Records:
    """The records of a file, of which only offsets are in memory: 16 bytes each.

    Attributes:
        path: the file.
        lines: int64 ``[n, 2]``: offset and number of each line with a record.
        digest: sha256 of the file.
    """

    path: Path
    lines: npt.NDArray[np.int64]
    digest: str

    @classmethod
    def of(cls, path: Path) -> Records:
        """Index the records of a file; blank lines and a byte order mark are skipped."""
        lines: list[tuple[int, int]] = []
        digest, start = hashlib.sha256(), 0
        if not path.exists():
            raise NotFoundError(f"{path}: no such file", hint=_A_FILE)
        if path.is_dir():
            raise NotFoundError(f"{path}: a directory", hint=_A_FILE)
        if not path.is_file():
            raise UsageError(
                f"{path}: pipes and devices cannot be read, because every step seeks its records",
                hint="write the records to a file first",
            )
        with _readable(path), path.open("rb") as file:
            for number, line in enumerate(_lines(file, path), start=1):
                digest.update(line)
                marked = len(_BOM) if number == 1 and line.startswith(_BOM) else 0
                if line[marked:].strip():
                    lines.append((start + marked, number))
                start += len(line)
        if not lines:
            raise DataError(f"{path}: no records", hint='write one JSON object per line, such as {"prompt": "..."}')
        return cls(path, np.array(lines, np.int64), f"sha256:{digest.hexdigest()}")

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
        location = f"{self.path}:{number}"
        try:
            return Record(location, parse_object(line, location, max_bytes=MAX_LINE_BYTES, max_values=MAX_LINE_BYTES))
        except (FormatError, LimitError) as error:
            raise type(error)(
                error.message, hint=f"one JSON object per line, in UTF-8: sed -n {number}p {self.path}"
            ) from error


def drawn(records: int, seed: int, *, step: int, batch: int) -> list[int]:
    """Which records a step trains on: each epoch is a random permutation of all records.

    The order follows from seed and epoch, so a run resumes anywhere without saved state. With 5 records and batches of
    3, step 1 takes positions 3 and 4 of epoch 0 and position 0 of epoch 1.
    """
    positions = (divmod(number, records) for number in range(step * batch, (step + 1) * batch))
    return [int(_order(records, seed, epoch)[position]) for epoch, position in positions]


@lru_cache(maxsize=2)
def _order(records: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    # Cached between steps; two, because a step may end one epoch and begin the next.
    return np.random.default_rng([seed, epoch]).permutation(records)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise DataError(f"{path}: cannot be read ({error.strerror})", hint="copy it to another disk") from error


def _lines(file: Any, path: Path) -> Iterator[bytes]:
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise LimitError(f"{path}: a line is longer than {MAX_LINE_BYTES:,} bytes", hint=_A_FILE)
        yield line
