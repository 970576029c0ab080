"""State dicts that ``torch.save`` wrote: a ``.bin`` or ``.pt`` file, or several with an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from maskreg.bucket import Location
from maskreg.checkpoint.base import Format, Reopen
from maskreg.checkpoint.boxes import Box
from maskreg.checkpoint.causes import HEAD_BYTES, explained
from maskreg.checkpoint.files import in_folder, read_whole
from maskreg.checkpoint.index import check_index, parse_index
from maskreg.checkpoint.layouts import TORCH_INDEX_NAME, TORCH_NAME, TORCH_SUFFIXES, is_torch, state_dicts
from maskreg.checkpoint.pickled.statedict import StateDict, read_state_dict
from maskreg.checkpoint.pickled.tensors import ShardedTensor, StoredTensor, info_of, piece_of
from maskreg.checkpoint.pieces import Contents, Files, PiecewiseCheckpoint
from maskreg.checkpoint.statedict import Chooser, weights_among
from maskreg.errors import FormatError, MaskregError, NotFoundError
from maskreg.limits import LIMITS, Limits
from maskreg.words import listed


def recognize(path: Location) -> bool:
    """Whether a file has the suffix of a state dict, or a directory holds one or an index, and nothing better."""
    return is_torch(path) if path.is_dir() else path.suffix in TORCH_SUFFIXES


def open_path(
    path: Location,
    *,
    hub: str = "",
    limits: Limits = LIMITS,
    reopen: Reopen | None = None,
    choose: Chooser = weights_among,
) -> PiecewiseCheckpoint:
    """Open one file, or a directory with ``pytorch_model.bin``, an index and shards, or one state dict.

    ``choose`` picks the tensors of a state dict: the weights, if nothing else is said.

    Raises:
        DataError: index or weights break the format, or hold more than tensors and plain values.
        NotFoundError: a shard is missing.
    """
    folder = path if path.is_dir() else path.parent
    weight_map: Mapping[str, str] | None = None
    paths = state_dicts(path) if path.is_dir() else [path]
    if not paths:
        raise NotFoundError(f"{path}: no state dict in this folder", hint=f"this format is {TORCH.accepts}")
    if path.is_dir() and paths[0].name == TORCH_INDEX_NAME:
        data = read_whole(path / TORCH_INDEX_NAME, limits.index_json_bytes)
        with in_folder(path):
            weight_map = parse_index(data, TORCH_INDEX_NAME, TORCH_SUFFIXES, limits)
        paths = [path / name for name in sorted(set(weight_map.values()))]
    elif len(paths) > 1:
        raise FormatError(
            f"{path}: {len(paths)} state dicts ({listed([file.name for file in paths], 3)}) but no {TORCH_INDEX_NAME}",
            hint="name one of the files",
        )
    files = Files()
    try:
        parts = [_read(files, file, limits, choose) for file in paths]
        with in_folder(folder):
            if weight_map is not None:
                shards = [(part.archive.file.path.name, part.tensors) for part in parts]
                check_index(weight_map, shards, TORCH_INDEX_NAME)
            contents = _contents(parts, limits)
        own = frozenset({TORCH_INDEX_NAME, *(file.name for file in paths)})
        companions = path if path.is_dir() else None
        return PiecewiseCheckpoint(
            "torch", path, files, contents, companions=companions, own=own, hub=hub, limits=limits
        )
    except MaskregError:
        files.close()
        raise


def _read(files: Files, path: Location, limits: Limits, choose: Chooser) -> StateDict:
    file = files.open(path)
    with in_folder(path.parent):
        head = bytearray(min(HEAD_BYTES, file.size))
        file.fill(memoryview(head), 0)
        try:
            return read_state_dict(file, limits, choose)
        except FormatError as error:
            raise explained(error, path, bytes(head), file.size, own="torch") from error


def _contents(parts: Sequence[StateDict], limits: Limits) -> Contents:
    contents = Contents(notes=tuple(note for part in parts for note in part.notes))
    for part in parts:
        document = part.archive.file.path.name
        for name, tensor in part.tensors.items():
            info = info_of(name, tensor, document, limits)
            local = _whole(name, tensor, document)
            box = Box((0,) * len(info.shape), info.shape)
            contents.add(info, [piece_of(part.archive, local, box)] if info.numel else [], document)
    return contents


def _whole(name: str, tensor: StoredTensor | ShardedTensor, document: str) -> StoredTensor:
    if isinstance(tensor, StoredTensor):
        return tensor
    if tensor.box().shape != tensor.shape:
        raise FormatError(
            f"{document}: one process's part of a model: of {name}, {list(tensor.local.shape)} of {list(tensor.shape)}",
            hint="name the folder that holds the parts of all processes",
        )
    return tensor.local


TORCH = Format(
    name="torch",
    accepts=f"a state dict of torch.save (.bin, .pt), a directory with {TORCH_NAME} or {TORCH_INDEX_NAME}",
    recognize=recognize,
    open=open_path,
    hub_files=(),
)
"""The line of the table of formats."""
