"""Files of ``torch.save``: torch reads what is in them, but no values; here is where in the file these lie.

A file is a zip that stores its entries as they are, so that any part can be read in place. A distributed checkpoint
puts many one after another into a file, so an archive is a part of a file::

    NAME/data.pkl        a pickle; tensors in it name a storage
    NAME/data/0          a storage: the elements of one or more tensors, one after another
    NAME/data/1          ...
    directory            which entries there are, and where

The pickle is checked (:mod:`maskreg.checkpoint.pickles`) before ``torch.load(weights_only=True)`` gets it, which makes
tensors without values and notes where each storage begins. A tensor that several processes share (``DTensor``) is saved
by each with its own part, the mesh of processes, and how each dimension of the mesh divides the tensor.
"""

from __future__ import annotations

import io
import logging
import os
import re
import struct
import zipfile
from bisect import bisect_right
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import IO, TYPE_CHECKING, Any, cast

from maskreg.checkpoint.files import AGAIN, OpenFile
from maskreg.checkpoint.pickles import PICKLE_ERRORS, check
from maskreg.checkpoint.pieces import Box, Piece
from maskreg.errors import ConfigError, CorruptError, FormatError, LimitError, translating
from maskreg.extras import requiring
from maskreg.limits import LIMITS
from maskreg.tensors.info import TensorInfo, shown

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NAMES = re.compile(
    r"collections OrderedDict|torch \w+|torch\.storage UntypedStorage|torch\.nn\.parameter (Parameter|Buffer)|"
    r"torch\._utils _rebuild_(tensor|tensor_v2|tensor_v3|parameter|parameter_with_state|wrapper_subclass)|"
    r"torch\._tensor _rebuild_from_type_v2|torch\.serialization _get_layout|"
    r"torch\.distributed\.(device_mesh|_mesh_layout|tensor[.\w]*) \w+"
)
"""What a pickle can name: tensors, parts of tensors, dictionaries. Of these, torch allows fewer."""

_PROTOCOL = 2
DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip
"""Codes of safetensors by the names of torch's dtypes."""

_LOCAL = struct.Struct("<4s22x2H")  # in front of every entry: a sign, and sizes of its name and of extra data
_ENCRYPTED = 1
_ENTRIES_PER_TENSOR = 2
_OTHER_ENTRIES = 100


class Archive:
    """An archive in a part of a file: ``saved`` is what was saved, its tensors on the device ``meta``."""

    def __init__(self, file: OpenFile, start: int, size: int) -> None:
        """Read the directory and the pickle."""
        self.document, self.file, self._start = file.path.name, file, start
        if start < 0 or size < 0 or start + size > file.size:
            raise CorruptError(self.document, f"the file is cut short: it has {file.size:,} bytes", hint=AGAIN)
        self._part = _Part(file, start, size)
        with self._reading():
            with zipfile.ZipFile(self._part) as archive:
                self._entries = sorted(archive.infolist(), key=attrgetter("header_offset"))
            if any(entry.compress_type or entry.flag_bits & _ENCRYPTED for entry in self._entries):
                raise self._broken("it is compressed or encrypted, which torch.save never does")
            # The first folder is the archive's own name, which depends on the file that it was saved to.
            by_name = {entry.filename.partition("/")[2].lower(): entry for entry in self._entries}
            # The pickle that is checked must be the one that torch loads. torch ignores case, takes any of two entries
            # of a name, and reads what does not begin with an entry as a file of an older torch.save.
            if len(by_name) < len(self._entries) or self._entries[0].header_offset:
                raise self._broken("two of its entries have one name, or something lies in front of them")
            if "byteorder" in by_name and self._content(by_name["byteorder"]) != b"little":
                raise FormatError(f"{self.document}: saved on a machine with another order of bytes")
            named = check(self._content(by_name["data.pkl"]), _NAMES, self.document, protocol=_PROTOCOL)
            self._part.seek(0)
            self.saved = _loaded(self._part, self.document, parts=any("torch.distributed" in name for name in named))

    def locate(self, tensor: Any) -> tuple[int, int]:
        """Where in the file a tensor's storage begins, and its size, in bytes."""
        with self._reading():
            storage = tensor.untyped_storage()
            offset = storage._checkpoint_offset
            at = bisect_right(self._entries, offset, key=attrgetter("header_offset")) - 1
            entry = self._entries[at]
            if (self._begin(entry), entry.file_size) != (offset, storage.nbytes()):
                raise self._broken("a storage does not lie where its pickle says, or has another size")
            return self._start + offset, entry.file_size

    def _content(self, entry: zipfile.ZipInfo) -> bytes:
        self._part.seek(self._begin(entry))
        return self._part.read(entry.file_size)

    def _begin(self, entry: zipfile.ZipInfo) -> int:
        """Where an entry's content begins in the part."""
        self._part.seek(entry.header_offset)
        sign, name_bytes, extra_bytes = _LOCAL.unpack(self._part.read(_LOCAL.size))
        begin: int = entry.header_offset + _LOCAL.size + name_bytes + extra_bytes
        if sign != b"PK\x03\x04" or begin + entry.file_size > self._part.size:
            raise self._broken(f"the entry {shown(entry.filename)} does not lie where the directory says")
        return begin

    def _reading(self) -> AbstractContextManager[None]:
        """Let only this package's errors out; a damaged file can make any other of zipfile and torch."""

        def broken(error: Exception) -> FormatError:
            return self._broken((str(error).strip().splitlines() or [type(error).__name__])[0])

        return translating((*PICKLE_ERRORS, zipfile.BadZipFile), broken)

    def _broken(self, fault: str) -> FormatError:
        return FormatError(f"{self.document}: not an archive of torch.save, or damaged: {fault}", hint=AGAIN)


def _loaded(part: _Part, document: str, *, parts: bool) -> Any:
    with requiring(f"{document}: a file of torch.save"):
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode
    if parts:
        import torch.distributed.tensor  # makes its classes known to torch.load

    version = tuple(map(int, torch.__version__.split(".")[:2]))
    if version < (2, 7):
        raise ConfigError(
            f"{document}: torch {torch.__version__} does not say where in a file tensors lie",
            hint="pip install --upgrade torch",
        )
    logger = logging.getLogger("torch.distributed.device_mesh")  # it warns that there is no group of processes
    before, logger.disabled = logger.disabled, True
    try:
        # Before torch 2.11, only this mode makes tensors without reading their values.
        with nullcontext() if version >= (2, 11) else FakeTensorMode():
            return torch.load(cast("IO[bytes]", part), map_location="meta", weights_only=True)
    finally:
        logger.disabled = before


class _Part(io.RawIOBase):
    """A part of a file, as zipfile and torch read it: never more at once than a directory can have."""

    def __init__(self, file: OpenFile, start: int, size: int) -> None:
        self.size, self._file, self._start, self._at = size, file, start, 0

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
        name, most_bytes = self._file.path.name, LIMITS.archive_bytes
        if count > most_bytes:
            raise LimitError(f"{name}: a directory or a pickle of {count} bytes; the limit is {most_bytes}")
        data = bytearray(count)
        if not self._file.fill(memoryview(data), self._start + self._at):
            raise CorruptError(name, "cut short while it was read")
        # Before zipfile makes an object of each, which takes twenty times its bytes.
        most_entries = _ENTRIES_PER_TENSOR * LIMITS.tensors + _OTHER_ENTRIES
        if (entries := data.count(b"PK\x01\x02")) > most_entries:
            raise LimitError(f"{name}: {entries} entries; the limit is {most_entries}")
        self._at += count
        return bytes(data)

    def readinto(self, into: Buffer, /) -> int:
        view = memoryview(into)
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)


def info_of(name: str, tensor: Any, document: str) -> TensorInfo:
    """A tensor as checkpoints describe it."""
    where = f"{document}: tensor {shown(name)[1:-1]}"
    if tensor.is_conj() or tensor.is_neg():
        raise FormatError(f"{where}: a view whose values are still to be computed")
    dtype = str(tensor.dtype)
    if (code := DTYPES.get(dtype.removeprefix("torch."))) is None:
        raise FormatError(f"{where} has the dtype {dtype}, which no mask can have")
    if tensor.numel() > LIMITS.numel:
        raise LimitError(f"{where} has too many elements; the limit is {LIMITS.numel}")
    return TensorInfo(name, code, tuple(tensor.shape))


def piece_of(archive: Archive, tensor: Any, box: Box) -> Piece:
    """Where the elements of a tensor lie; ``box``: its place in the whole."""
    item = tensor.element_size()
    offset, size = archive.locate(tensor)
    last = tensor.storage_offset() + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    # A tensor that shows elements more than once could be of any size.
    if (last + 1) * item > size or tensor.numel() * item > size:
        raise FormatError(f"{archive.document}: a tensor lies outside its storage")
    return Piece(box, archive.file, offset + tensor.storage_offset() * item, tuple(tensor.stride()))


def part_of(name: str, tensor: Any, document: str) -> tuple[Any, Box]:
    """The part that was saved of a tensor, and where it lies in the whole; all of it unless several processes share it.

    Raises:
        FormatError: nothing says where the part lies, or it has another shape than its place.
    """
    where = f"{document}: tensor {shown(name)[1:-1]}"
    try:
        local, box = _part(tensor)
    except FormatError as error:
        raise FormatError(f"{where}: {error.message}") from error
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise FormatError(f"{where}: a part without a place ({error})", hint=AGAIN) from error
    if box.shape != tuple(local.shape):
        fault = f"the part has the shape {list(local.shape)}, and its place {list(box.shape)}"
        raise FormatError(f"{where}: {fault}", hint=AGAIN)
    return local, box


def _part(tensor: Any) -> tuple[Any, Box]:
    box = Box((0,) * tensor.ndim, tuple(tensor.shape))
    if not is_shared(tensor):
        return tensor, box
    spec = tensor._spec
    if (coordinate := spec.mesh.get_coordinate()) is None:
        raise FormatError("the process that saved it is not part of its mesh")
    for placement in spec.placements:
        if (kind := type(placement).__name__) not in ("Shard", "_StridedShard", "Replicate"):
            raise FormatError(f"its processes hold values that are not reduced yet ({kind})")
    for axis in _order(spec):
        if (dim := getattr(spec.placements[axis], "dim", None)) is not None:
            # Until torch 2.8 a mesh is saved as a tensor of its processes.
            saved = vars(spec.mesh).get("mesh")
            box = _cut(box, dim, tuple(spec.mesh.shape if saved is None else saved.shape)[axis], coordinate[axis])
    return tensor._local_tensor, box


def is_shared(tensor: Any) -> bool:
    """Whether a tensor is one of which each process has a part."""
    return hasattr(tensor, "_local_tensor")


def _cut(box: Box, dim: int, count: int, at: int) -> Box:
    """One of ``count`` parts of a box: the first ones have ``ceil(size / count)``.

    Example: 5 rows on 4 processes are 2, 2, 1 and 0 rows.
    """
    if not 0 <= at < count:
        raise ValueError("a process outside its mesh")
    begin, shape = list(box.begin), list(box.shape)
    part = -(-shape[dim] // count)
    skipped = min(part * at, shape[dim])
    begin[dim] += skipped
    shape[dim] = min(part, shape[dim] - skipped)
    return Box(tuple(begin), tuple(shape))


def _order(spec: Any) -> tuple[int, ...]:
    """Dimensions of the mesh, the first cut first.

    Where two divide one dimension of the tensor, a strided shard says that it cuts what the later ones have left, as
    FSDP does with the parts of tensor parallelism.
    """
    axes = range(len(spec.placements))
    for entry in getattr(spec, "shard_order", None) or ():
        if len(entry.mesh_dims) > 1:
            return (*entry.mesh_dims, *(axis for axis in axes if axis not in entry.mesh_dims))
    strided = [axis for axis in axes if type(spec.placements[axis]).__name__ == "_StridedShard"]
    return (*(axis for axis in axes if axis not in strided), *reversed(strided))
