"""Tensors in pickles of ``torch.save``: not their values, but where in an archive these lie.

A tensor is pickled as a call that would build it from a storage, its offset there, shape and strides. A tensor that
several processes share (``DTensor``) is pickled by each with its own part, the mesh of processes, and how each
dimension of the mesh divides the tensor.
"""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maskreg.checkpoint.files import AGAIN, OpenFile
from maskreg.checkpoint.pieces import Box, Piece, Shape
from maskreg.checkpoint.unpickler import Global, Maker, Names, Record, load
from maskreg.errors import CorruptError, DataError, FormatError, LimitError
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.info import ITEM_BYTES, MAX_RANK, TensorInfo, shown

# Archives of ``torch.save``: zip files that store their entries as they are, so that any part can be read in place.
#
# ::
#
#     NAME/data.pkl        a pickle; tensors in it name a storage
#     NAME/byteorder       little
#     NAME/data/0          a storage: the elements of one or more tensors, one after another
#     NAME/data/1          ...
#     directory            which entries there are, and where; its own place is at the very end
#
# A distributed checkpoint puts many such archives one after another into a file, so an archive is a part of a file.
# Only what torch writes is read: nothing compressed or encrypted, no entry twice.

_LOCAL = struct.Struct("<4s5H3I2H")  # in front of every entry; its sizes can be zero, the directory's count

_END_BYTES, _END_SIGN = 22, b"PK\x05\x06"
_ENTRIES_PER_TENSOR = 2
_OTHER_ENTRIES = 100
_ENCRYPTED = 1
_READING = (zipfile.BadZipFile, RuntimeError, ValueError, LookupError, OverflowError, struct.error)


class Archive:
    """An archive in a part of a file. ``entries``: by name, without the archive's own name in front."""

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


_DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip
# Others that torch has; a tensor of one is known, but cannot be in a checkpoint.
_OTHER_DTYPES = {
    "complex32", "complex128", "float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn_x2", "qint8", "quint8", "qint32",
    "quint4x2", "quint2x4",
}  # fmt: skip
_STORAGES = {
    "BoolStorage": "BOOL", "ByteStorage": "U8", "CharStorage": "I8", "ShortStorage": "I16", "IntStorage": "I32",
    "LongStorage": "I64", "HalfStorage": "F16", "BFloat16Storage": "BF16", "FloatStorage": "F32",
    "DoubleStorage": "F64", "ComplexFloatStorage": "C64", "ComplexDoubleStorage": "torch.complex128",
}  # fmt: skip
_UNTYPED = "torch.storage.UntypedStorage"
_DTENSORS = frozenset({"torch.distributed.tensor.DTensor", "torch.distributed._tensor.api.DTensor"})
_SUBCLASSES = frozenset({"torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer", "torch.Tensor"})
_PLACEMENTS = tuple(
    f"torch.distributed.{package}.placement_types." for package in ("tensor", "_tensor", "tensor._dtensor_spec")
)

DTYPE_NAMES: Mapping[str, str] = {f"torch.{name}": code for name, code in _DTYPES.items()}
"""Dtypes by the name that a pickle has for them."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage of an archive, by its number there as text; ``U8`` when it has no dtype."""

    key: str
    dtype: str
    numel: int


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in an archive.

    Attributes:
        dtype: safetensors code; as torch names it for a dtype that has none.
        offset: of its first element in the storage, in elements.
        shape: empty for a 0-D tensor.
        fault: why its values cannot be read as they lie there; empty when they can.
    """

    storage: Storage
    dtype: str
    offset: int
    shape: Shape
    strides: Shape
    fault: str = ""

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for two tensors of one archive that share all their elements."""
        return self.storage.key, self.dtype, self.offset, self.shape, self.strides


@dataclass(frozen=True, slots=True)
class ShardedTensor:
    """One process's part of a tensor that several share.

    Attributes:
        mesh: number of processes in each dimension of the mesh.
        placements: for each dimension of the mesh, the dimension of the tensor that it divides; None where it repeats.
        order: dimensions of the mesh in which they divide the tensor, the first cut first.
        fault: why its place is not known; empty when it is.
    """

    local: StoredTensor
    shape: Shape
    mesh: Shape
    coordinate: Shape
    placements: tuple[int | None, ...]
    order: tuple[int, ...]
    fault: str = ""

    def box(self) -> Box:
        """Where the part lies in the whole: each cut gives the first processes parts of ``ceil(size / n)``.

        Example: 5 rows on 4 processes are 2, 2, 1 and 0 rows.
        """
        begin, shape = [0] * len(self.shape), list(self.shape)
        for axis in self.order:
            dim = self.placements[axis]
            if dim is not None:
                part = -(-shape[dim] // self.mesh[axis])
                skipped = min(part * self.coordinate[axis], shape[dim])
                begin[dim] += skipped
                shape[dim] = min(part, shape[dim] - skipped)
        return Box(tuple(begin), tuple(shape))


def load_archive(archive: Archive, limits: Limits = LIMITS) -> Any:
    """What was saved, with tensors as :class:`StoredTensor` and :class:`ShardedTensor`."""
    name = archive.file.path.name
    if "byteorder" in archive.entries and archive.content("byteorder", 16) != b"little":
        raise FormatError(f"{name}: saved on a machine with another order of bytes")
    data = archive.content("data.pkl", limits.pickle_bytes)
    return load(data, NAMES, name, persistent=_storage, limits=limits)


def info_of(name: str, tensor: StoredTensor | ShardedTensor, document: str, limits: Limits = LIMITS) -> TensorInfo:
    """A tensor as checkpoints describe it."""
    local = tensor.local if isinstance(tensor, ShardedTensor) else tensor
    if fault := (tensor.fault or local.fault):
        raise FormatError(f"{document}: tensor {shown(name)[1:-1]}: {fault}")
    if local.dtype not in ITEM_BYTES:
        raise FormatError(f"{document}: tensor {shown(name)[1:-1]} has the dtype {local.dtype}, which no mask can have")
    if any(size > limits.numel for size in tensor.shape) or math.prod(tensor.shape) > limits.numel:
        raise LimitError(f"{document}: tensor {shown(name)[1:-1]} has too many elements; the limit is {limits.numel}")
    return TensorInfo(name, local.dtype, tensor.shape)


def piece_of(archive: Archive, tensor: StoredTensor, box: Box) -> Piece:
    """Where the elements of a tensor lie."""
    document, storage = archive.file.path.name, tensor.storage
    item = ITEM_BYTES[tensor.dtype]
    offset, size = archive.locate(f"data/{storage.key}")
    if size != storage.numel * ITEM_BYTES[storage.dtype]:
        raise CorruptError(document, f"storage {shown(storage.key)} has {size} bytes, not as many as its pickle says")
    last = tensor.offset + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.strides, strict=True))
    numel = math.prod(tensor.shape)
    # A tensor that shows elements more than once could be of any size.
    if numel and ((last + 1) * item > size or numel * item > size):
        raise FormatError(f"{document}: a tensor lies outside its storage {shown(storage.key)}")
    return Piece(box, archive.file, offset + tensor.offset * item, tensor.strides)


def _storage(pid: Any) -> Storage:
    kind, cls, key, _, numel, *_ = pid
    if kind != "storage" or not isinstance(key, str) or type(numel) is not int or numel < 0:
        raise TypeError("a malformed storage")
    name = cls.name if isinstance(cls, Global) else ""
    dtype = "U8" if name == _UNTYPED else _STORAGES.get(name.removeprefix("torch."), "")
    if not dtype:
        raise TypeError(f"a storage of the class {shown(name)}")
    return Storage(key, dtype, numel)


def _shape(value: Any) -> Shape:
    # type(), not isinstance(): True is no size.
    if not isinstance(value, tuple) or len(value) > MAX_RANK or any(type(n) is not int or n < 0 for n in value):
        raise TypeError("a malformed shape")
    return value


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> StoredTensor:
    if not isinstance(storage, Storage) or type(offset) is not int or offset < 0:
        raise TypeError("a tensor without a storage")
    sizes, steps = _shape(shape), _shape(strides)
    if len(sizes) != len(steps):
        raise TypeError("a tensor with fewer strides than dimensions")
    # Bits of the metadata, such as a negation that has not been carried out yet.
    metadata = rest[2] if len(rest) > 2 else None
    return StoredTensor(
        storage, storage.dtype, offset, sizes, steps, "a view whose values are still to be computed" if metadata else ""
    )


def _typed_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> StoredTensor:
    grad, hooks, dtype, *metadata = rest
    plain = _tensor(storage, offset, shape, strides, grad, hooks, *metadata)
    if not isinstance(dtype, Global):
        raise TypeError("a tensor without a dtype")
    code = DTYPE_NAMES.get(dtype.name, dtype.name)
    return StoredTensor(plain.storage, code, plain.offset, plain.shape, plain.strides, plain.fault)


def _parameter(data: Any, *rest: Any) -> Any:
    if not isinstance(data, StoredTensor | ShardedTensor):
        raise TypeError("a parameter without a tensor")
    return data


def _of_type(function: Any, cls: Any, args: Any, state: Any) -> Any:
    """A tensor of a subclass: as for a plain one, or a process's part of one."""
    if not isinstance(function, Global) or not isinstance(cls, Global) or not isinstance(args, tuple):
        raise TypeError("a tensor of no class")
    if cls.name in _DTENSORS:
        attributes = state[1] if isinstance(state, tuple) else state
        return _sharded(attributes["_local_tensor"], attributes["_spec"])
    return _TENSORS[function.name](*args)


def _sharded(local: Any, spec: Any) -> ShardedTensor:
    if not isinstance(local, StoredTensor) or not isinstance(spec, Record):
        raise TypeError("a shard without a tensor")
    mesh, meta = spec.state["mesh"], spec.state["tensor_meta"]
    shape = _shape(meta.args[0])
    sizes = _mesh_shape(mesh.state)
    coordinate = mesh.state.get("_coordinate_on_dim")
    placements = spec.state["placements"]
    if len(placements) != len(sizes):
        raise TypeError("a mesh of other dimensions")
    dims: list[int | None] = []
    fault = ""
    for placement in placements:
        kind = placement.name.rpartition(".")[2]
        dim = placement.state["dim"] if "Shard" in kind else None
        if kind not in ("Shard", "_StridedShard", "Replicate"):
            fault = f"its processes hold values that are not reduced yet ({kind})"
        if dim is not None and (type(dim) is not int or not -len(shape) <= dim < len(shape)):
            raise TypeError("a shard of a dimension that is not there")
        dims.append(None if dim is None else dim % len(shape))
    if coordinate is None:
        fault, coordinate = fault or "the process that saved it is not part of its mesh", (0,) * len(sizes)
    position = _shape(tuple(coordinate))
    if len(position) != len(sizes) or any(at >= size for at, size in zip(position, sizes, strict=True)):
        raise TypeError("a process outside its mesh")
    return ShardedTensor(local, shape, sizes, position, tuple(dims), _order(spec.state, placements), fault)


def _mesh_shape(state: Any) -> Shape:
    # The mesh itself until torch 2.8; then a layout of one flat layout for each dimension.
    if "mesh" in state:
        return _shape(state["mesh"].shape)
    layout = state["_layout"].state
    if "axes" in layout:
        return tuple(math.prod(_flat(axis.state["shape"])) for axis in layout["axes"])
    return tuple(
        math.prod(_flat(size))
        for size in (layout["shape"] if isinstance(layout["shape"], tuple) else (layout["shape"],))
    )


def _flat(value: Any) -> Shape:
    return _shape(value if isinstance(value, tuple) else (value,))


def _order(state: Any, placements: Any) -> tuple[int, ...]:
    """Dimensions of the mesh, the first cut first.

    Where two divide one dimension of the tensor, a strided shard says that it cuts what the later ones have left, as
    FSDP does with the parts of tensor parallelism.
    """
    for entry in state.get("shard_order") or ():
        if len(entry.args[1]) > 1:
            axes = _shape(entry.args[1])
            if any(axis >= len(placements) for axis in axes):
                raise TypeError("an order of dimensions that are not there")
            rest = [axis for axis in range(len(placements)) if axis not in axes]
            return (*axes, *rest)
    strided = [axis for axis, placement in enumerate(placements) if placement.name.endswith("._StridedShard")]
    return (*(axis for axis in range(len(placements)) if axis not in strided), *reversed(strided))


def _empty_dictionary(*args: Any) -> dict[Any, Any]:
    # Items come later, one by one; a call with items would copy them.
    if len(args) > 1 or (args and not isinstance(args[0], Global | type(None))):
        raise TypeError("a dictionary that is made with items")
    return {}


_TENSORS: Mapping[str, Maker] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _typed_tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
}

_SPECS = "torch.distributed.tensor._dtensor_spec", "torch.distributed._tensor.placement_types"

NAMES = Names(
    makers={
        **_TENSORS,
        "torch._tensor._rebuild_from_type_v2": _of_type,
        "collections.OrderedDict": _empty_dictionary,
        "collections.defaultdict": _empty_dictionary,
        "torch.Size": _shape,
    },
    records=frozenset(
        {
            "torch.device",
            "torch.serialization._get_layout",
            "torch.distributed.device_mesh.DeviceMesh",
            "torch.distributed._mesh_layout._MeshLayout",
            "torch.distributed._mesh_layout._FlatLayout",
            *(f"{spec}.{name}" for spec in _SPECS for name in ("DTensorSpec", "TensorMeta", "ShardOrderEntry")),
            *(
                f"{package}{name}"
                for package in _PLACEMENTS
                for name in ("Shard", "_StridedShard", "Replicate", "Partial", "_MaskPartial")
            ),
        }
    ),
    constants=frozenset(
        {
            *DTYPE_NAMES,
            *(f"torch.{name}" for name in _OTHER_DTYPES),
            *(f"torch.{name}" for name in _STORAGES),
            *_SUBCLASSES,
            *_DTENSORS,
            _UNTYPED,
            "torch._utils._rebuild_wrapper_subclass",
            *(f"builtins.{name}" for name in ("dict", "list", "int", "float", "str", "bool", "tuple", "set")),
        }
    ),
)
"""What a state dict may name: tensors, parts of tensors, dictionaries."""
