"""Archives of ``torch.save``: zip files that store their entries as they are, so that any part can be read in place.

::

    NAME/data.pkl        a pickle; tensors in it name a storage
    NAME/byteorder       little
    NAME/data/0          a storage: the elements of one or more tensors, one after another
    NAME/data/1          ...
    directory            which entries there are, and where; its own place is at the very end

A distributed checkpoint puts many such archives one after another into a file, so an archive is a part of a file.
Only what torch writes is read: nothing compressed or encrypted, no comment behind the directory.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from maskreg.checkpoint.files import AGAIN, OpenFile
from maskreg.errors import CorruptError, FormatError, LimitError
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.names import shown

LOCAL = struct.Struct("<4s5H3I2H")
"""In front of every entry; its sizes may be zero, those of the directory count."""

ENTRY = struct.Struct("<4s6H3I5H2I")
"""A line of the directory."""

END = struct.Struct("<4s4H2IH")
"""Behind the directory: how many lines it has, its size, and where it begins."""

LOCATOR = struct.Struct("<4sIQI")
"""Where the end for large archives is, in front of the other."""

END64 = struct.Struct("<4sQ2H2I4Q")
"""The end for large archives."""

_FULL32 = 0xFFFFFFFF
_ENTRIES_PER_TENSOR = 2
_OTHER_ENTRIES = 100
_STORED = 0
_ENCRYPTED = 1


class Entry(NamedTuple):
    """An entry of an archive.

    Attributes:
        offset: of its header, from the archive's begin in bytes.
        size: of its content in bytes.
    """

    offset: int
    size: int


class Archive:
    """An archive in a part of a file.

    Attributes:
        file: that holds it.
        entries: by name, without the archive's own name in front.
    """

    def __init__(self, file: OpenFile, start: int, size: int, limits: Limits = LIMITS) -> None:
        """Read the directory.

        Args:
            file: that holds it.
            start: where it begins in the file, in bytes.
            size: of the archive in bytes.
            limits: bounds on its directory.

        Raises:
            FormatError: not an archive of torch.
            CorruptError: the file ends too early.
            LimitError: the directory is too large.
        """
        self.file, self._start, self._size = file, start, size
        if start < 0 or size < 0 or start + size > file.size:
            raise CorruptError(file.path.name, f"the file is cut short: it has {file.size:,} bytes", hint=AGAIN)
        self._directory, length, count = self._end(limits)
        self.entries = self._parse(self._bytes(self._directory, length), count)

    def content(self, name: str, max_bytes: int) -> bytes:
        """An entry's content.

        Raises:
            FormatError: there is no such entry.
            LimitError: it is larger than ``max_bytes``.
        """
        offset, size = self.locate(name)
        if size > max_bytes:
            raise LimitError(f"{self.file.path.name}: {name} of {size} bytes; the limit is {max_bytes}")
        return self._bytes(offset - self._start, size)

    def locate(self, name: str) -> tuple[int, int]:
        """Where an entry's content begins in the file, and its size, in bytes.

        Raises:
            FormatError: there is no such entry, or it does not lie where the directory says.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise self._broken(f"the entry {shown(name)} is missing")
        if entry.offset + LOCAL.size > self._directory:
            raise self._broken(f"the entry {shown(name)} lies outside the archive")
        sign, *_, name_bytes, extra_bytes = LOCAL.unpack(self._bytes(entry.offset, LOCAL.size))
        begin = entry.offset + LOCAL.size + name_bytes + extra_bytes
        if sign != b"PK\x03\x04" or begin + entry.size > self._directory:
            raise self._broken(f"the entry {shown(name)} does not lie where the directory says")
        return self._start + begin, entry.size

    def _end(self, limits: Limits) -> tuple[int, int, int]:
        """Where the directory begins in the archive, its size in bytes, and how many lines it has."""
        at = self._size - END.size
        if at < 0:
            raise self._broken("it is too short")
        sign, _, _, _, count, length, offset, comment = END.unpack(self._bytes(at, END.size))
        if sign != b"PK\x05\x06" or comment:
            raise self._broken("its end is missing: the file was cut short, or something was added to it")
        if at >= LOCATOR.size:
            locator, _, end64, _ = LOCATOR.unpack(self._bytes(at - LOCATOR.size, LOCATOR.size))
            if locator == b"PK\x06\x07":
                at = end64
                if at + END64.size > self._size:
                    raise self._broken("its end lies outside")
                sign, *_, count, length, offset = END64.unpack(self._bytes(at, END64.size))
                if sign != b"PK\x06\x06":
                    raise self._broken("its end does not lie where it should")
        most = _ENTRIES_PER_TENSOR * limits.tensors + _OTHER_ENTRIES
        if length > limits.archive_bytes or count > most:
            raise LimitError(
                f"{self.file.path.name}: a directory of {length} bytes and {count} entries; the limits are "
                f"{limits.archive_bytes} and {most}"
            )
        if offset + length > at:
            raise self._broken("its directory lies outside")
        return offset, length, count

    def _parse(self, data: bytes, count: int) -> Mapping[str, Entry]:
        entries: dict[str, Entry] = {}
        at = 0
        for _ in range(count):
            if at + ENTRY.size > len(data):
                raise self._broken("its directory is too short")
            fields = ENTRY.unpack_from(data, at)
            sign, flags, method, packed, size = fields[0], fields[3], fields[4], fields[8], fields[9]
            name_bytes, extra_bytes, comment_bytes, offset = fields[10], fields[11], fields[12], fields[16]
            begin = at + ENTRY.size
            end = begin + name_bytes + extra_bytes
            name, extra = data[begin : begin + name_bytes], data[begin + name_bytes : end]
            at = end + comment_bytes
            if sign != b"PK\x01\x02" or at > len(data):
                raise self._broken("its directory is damaged")
            size, packed, offset = _large(extra, size, packed, offset)
            if method != _STORED or packed != size or flags & _ENCRYPTED:
                raise self._broken("it is compressed or encrypted, which torch.save never does")
            # The first folder is the archive's own name, which depends on the file that it was saved to.
            text = name.decode("utf-8", "replace").partition("/")[2]
            if text in entries:
                raise self._broken(f"the entry {shown(text)} is there twice")
            entries[text] = Entry(offset, size)
        if at != len(data):
            raise self._broken("its directory is too long")
        return entries

    def _bytes(self, offset: int, size: int) -> bytes:
        data = bytearray(size)
        if not self.file.fill(memoryview(data), self._start + offset):
            raise CorruptError(self.file.path.name, "cut short while it was read")
        return bytes(data)

    def _broken(self, fault: str) -> FormatError:
        return FormatError(f"{self.file.path.name}: not an archive of torch.save, or damaged: {fault}", hint=AGAIN)


def _large(extra: bytes, size: int, packed: int, offset: int) -> tuple[int, int, int]:
    """Sizes and offset of 4 GiB and more, which stand in an extra field."""
    values = [size, packed, offset]
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            wide = [value for (value,) in struct.iter_unpack("<Q", extra[at + 4 : at + 4 + length // 8 * 8])]
            for index, value in enumerate(values):
                if value == _FULL32 and wide:
                    values[index] = wide.pop(0)
        at += 4 + length
    return values[0], values[1], values[2]
