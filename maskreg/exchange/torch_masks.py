"""Masks as ``torch.save`` writes a dictionary of boolean tensors; written and read without torch.

The file is a ZIP archive without compression. ``data.pkl`` is a pickle that calls torch's function for a tensor with a
storage, by its number, shape and strides; ``data/N`` is the storage with that number. Both are written in the order in
which ``torch.save`` has them, the storages block by block.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from maskreg.checkpoint import torch_files
from maskreg.checkpoint.base import Checkpoint
from maskreg.disk import creating, replacing
from maskreg.exchange.base import Format, Masks, Written
from maskreg.exchange.boolean import masks_in, require_maskable
from maskreg.exchange.incoming import tensor_of
from maskreg.exchange.outgoing import Outgoing
from maskreg.exchange.output import masks_written, working
from maskreg.limits import Limits
from maskreg.space import filling, require_space

_FOLDER = "archive"


def write(update: Outgoing, out: Path, *, force: bool) -> Written:
    """Write every mask; see :class:`maskreg.exchange.base.Format`."""
    shapes = {name: row.source_shape or () for name, row in update.masked.items()}
    path = out.expanduser().absolute()
    needed = sum(row.numel for row in update.masked.values())
    with filling(path, needed), creating(path), replacing(path, force=force) as file, working(update):
        require_space(path, needed)
        with ZipFile(file, "w", ZIP_STORED, allowZip64=True) as archive:
            _add(archive, "data.pkl", [_pickle(shapes.items())])
            _add(archive, "byteorder", [b"little"])
            for number, name in enumerate(shapes):
                _add(archive, f"data/{number}", (bits.tobytes() for bits in update.bits(name)))
            _add(archive, "version", [b"3\n"])
        size = file.tell()
    written = masks_written(update, path, size)
    note = "the output has no place for metadata: read back, it is a mask of rule exact without lineage"
    return replace(written, notes=(*written.notes, note))


def read(path: Path, source: Checkpoint, limits: Limits, closing: Callable[[Any], Any]) -> Masks:
    """Open a file; its pickle is read as data, and no code of it runs; see :class:`maskreg.exchange.base.Reader`."""
    file = torch_files.open_path(path, limits=limits)
    closing(file)
    masks = masks_in(file, source)
    for alias, owner in file.aliases.items():
        require_maskable(tensor_of(source, alias), file.tensors[owner].shape)
        masks[alias] = masks[owner]
    return Masks(masks, notes=file.remarks)


def _add(archive: ZipFile, name: str, parts: Iterable[bytes]) -> None:
    # A fixed date: the same masks give the same file.
    entry = ZipInfo(f"{_FOLDER}/{name}")
    with archive.open(entry, "w", force_zip64=True) as file:
        for part in parts:
            file.write(part)


def _pickle(shapes: Iterable[tuple[str, tuple[int, ...]]]) -> bytes:
    """The pickle of a dictionary of boolean tensors, in protocol 2.

    ::

        {"w": _rebuild_tensor_v2(("storage", BoolStorage, "0", "cpu", 6), 0, (3, 2), (2, 1), False, OrderedDict())}
    """
    items = b"".join(_text(name) + _tensor(number, shape) for number, (name, shape) in enumerate(shapes))
    return b"\x80\x02}(" + items + b"u."


def _tensor(number: int, shape: tuple[int, ...]) -> bytes:
    numel = math.prod(shape)
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    storage = (
        b"(" + _text("storage") + b"ctorch\nBoolStorage\n" + _text(str(number)) + _text("cpu") + _int(numel) + b"t"
    )
    arguments = storage + b"Q" + _int(0) + _tuple(shape) + _tuple(strides) + b"\x89" + b"ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR"


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _tuple(numbers: Iterable[int]) -> bytes:
    return b"(" + b"".join(map(_int, numbers)) + b"t"


def _int(number: int) -> bytes:
    if number < 1 << 31:
        return b"J" + struct.pack("<i", number)
    data = number.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


FORMAT = Format(
    name="torch",
    holds="mask",
    accepts="a .pt file with a dictionary of masks",
    write=write,
    read=read,
)
"""The line of the table of formats."""
