"""Archives of ``torch.save``: zip files that store their entries as they are, so that any part can be read in place.

::

    NAME/data.pkl        a pickle; tensors in it name a storage
    NAME/byteorder       little
    NAME/data/0          a storage: the elements of one or more tensors, one after another
    NAME/data/1          ...
    directory            which entries there are, and where; its own place is at the very end

A distributed checkpoint puts many such archives one after another into a file, so an archive is a part of a file.
Only what torch writes is read: nothing compressed or encrypted, no entry twice.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile

from maskreg.checkpoint.files import AGAIN, OpenFile
from maskreg.errors import CorruptError, DataError, FormatError, LimitError
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.info import shown

_LOCAL = struct.Struct("<4s5H3I2H")
"""In front of every entry; its sizes can be zero, the directory's count."""

_END_BYTES, _END_SIGN = 22, b"PK\x05\x06"
_ENTRIES_PER_TENSOR = 2
_OTHER_ENTRIES = 100
_ENCRYPTED = 1
_READING = (zipfile.BadZipFile, RuntimeError, ValueError, LookupError, OverflowError, struct.error)


class Archive:
    """An archive in a part of a file.

    Attributes:
        file: that holds it.
        entries: by name, without the archive's own name in front.
    """

    def __init__(self, file: OpenFile, start: int, size: int, limits: Limits = LIMITS) -> None:
        """Read the directory."""
        self.file, self._start = file, start
        if start < 0 or size < 0 or start + size > file.size:
            raise CorruptError(file.path.name, f"the file is cut short: it has {file.size:,} bytes", hint=AGAIN)
        self._part = _Part(file, start, size, limits)
        self._part.seek(max(size - _END_BYTES, 0))
        if self._part.read(len(_END_SIGN)) != _END_SIGN:
            raise self._broken("its end is missing: the file was cut short, or something was added to it")
        try:
            with zipfile.ZipFile(self._part) as archive:
                listed = archive.infolist()
        except DataError:
            raise
        except _READING as error:
            raise self._broken(str(error)) from error
        # The first folder is the archive's own name, which depends on the file that it was saved to.
        self.entries = {entry.filename.partition("/")[2]: entry for entry in listed}
        if len(self.entries) < len(listed):
            raise self._broken("it has an entry twice")
        if any(e.compress_type or e.compress_size != e.file_size or e.flag_bits & _ENCRYPTED for e in listed):
            raise self._broken("it is compressed or encrypted, which torch.save never does")

    def content(self, name: str, max_bytes: int) -> bytes:
        """An entry's content, of at most ``max_bytes``."""
        offset, size = self.locate(name)
        if size > max_bytes:
            raise LimitError(f"{self.file.path.name}: {name} of {size} bytes; the limit is {max_bytes}")
        data = bytearray(size)
        if not self.file.fill(memoryview(data), offset):
            raise CorruptError(self.file.path.name, "cut short while it was read")
        return bytes(data)

    def locate(self, name: str) -> tuple[int, int]:
        """Where an entry's content begins in the file, and its size, in bytes."""
        if (entry := self.entries.get(name)) is None:
            raise self._broken(f"the entry {shown(name)} is missing")
        self._part.seek(max(entry.header_offset, 0))
        header = self._part.read(_LOCAL.size)
        sign, *_, name_bytes, extra_bytes = _LOCAL.unpack(header.ljust(_LOCAL.size, b"\0"))
        begin = entry.header_offset + _LOCAL.size + name_bytes + extra_bytes
        if sign != b"PK\x03\x04" or entry.header_offset < 0 or begin + entry.file_size > self._part.size:
            raise self._broken(f"the entry {shown(name)} does not lie where the directory says")
        return self._start + begin, entry.file_size

    def _broken(self, fault: str) -> FormatError:
        return FormatError(f"{self.file.path.name}: not an archive of torch.save, or damaged: {fault}", hint=AGAIN)


class _Part(io.RawIOBase):
    """A part of a file, as ``zipfile`` reads it: never more than a directory may have."""

    def __init__(self, file: OpenFile, start: int, size: int, limits: Limits) -> None:
        self.size, self._file, self._start, self._at = size, file, start, 0
        self._most_bytes, self._most_entries = (
            limits.archive_bytes,
            _ENTRIES_PER_TENSOR * limits.tensors + _OTHER_ENTRIES,
        )

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        if at < 0:
            raise ValueError("its directory lies outside")
        self._at = at
        return at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        count = max(0, self.size - self._at)
        count = count if size < 0 else min(size, count)
        if count > self._most_bytes:
            raise LimitError(f"{self._name}: a directory of {count} bytes; the limit is {self._most_bytes}")
        data = bytearray(count)
        if not self._file.fill(memoryview(data), self._start + self._at):
            raise CorruptError(self._name, "cut short while it was read")
        # Before zipfile makes an object of each, which takes twenty times its bytes.
        if (entries := data.count(b"PK\x01\x02")) > self._most_entries:
            raise LimitError(f"{self._name}: {entries} entries; the limit is {self._most_entries}")
        self._at += count
        return bytes(data)

    @property
    def _name(self) -> str:
        return self._file.path.name
