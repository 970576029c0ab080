"""State dicts that ``torch.save`` wrote: a ``.bin`` or ``.pt`` file, or several with an index."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maskreg.bucket import Location, on_disk
from maskreg.checkpoint.archive import Archive, info_of, is_shared, part_of, piece_of
from maskreg.checkpoint.files import AGAIN, Files, OpenFile, in_folder, opening, read_whole
from maskreg.checkpoint.layouts import (
    RANK_FILE,
    TORCH_INDEX_NAME,
    TORCH_NAME,
    TORCH_SUFFIXES,
    check_index,
    explaining,
    parse_index,
    state_dicts,
)
from maskreg.checkpoint.pieces import Box, Contents, Piece, PiecewiseCheckpoint, same_elements
from maskreg.checkpoint.renaming import Path, weights_among
from maskreg.errors import FormatError, LimitError, NotFoundError
from maskreg.limits import LIMITS
from maskreg.tensors.info import check_name, shown
from maskreg.words import listed

# The weights of each process of a run, a file each, as verl saves them: ``model_world_size_4_rank_0.pt`` and others.
#
# Every file is a state dict of ``DTensor`` parts, which say where in the tensor they lie. The configuration and the
# tokenizer are in the folder ``huggingface`` beside them.

COMPANIONS = "huggingface"
"""Where verl saves configuration and tokenizer."""

READING = "reading what torch saved"
"""What needs files on a disk."""

_CONFIG = "fsdp_config.json"


def open_ranks(path: Location, *, hub: str = "") -> PiecewiseCheckpoint:
    """Open the files of all processes."""
    path = on_disk(path, READING)
    paths = _rank_files(path)
    with opening() as files:
        opened = [files.open(file) for file in paths]
        with in_folder(path):
            parts = [read_state_dict(file) for file in opened]
            contents = _contents_of_ranks(parts)
        beside = path / COMPANIONS
        return PiecewiseCheckpoint(
            "fsdp",
            path,
            files,
            contents,
            companions=beside if beside.is_dir() else path,
            own=frozenset({_CONFIG, *(file.name for file in paths)}),
            hub=hub,
        )


def _rank_files(folder: Location) -> list[Location]:
    """The file of every process, in their order."""
    worlds: dict[int, dict[int, Location]] = {}
    for entry in folder.iterdir():
        if match := RANK_FILE.fullmatch(entry.name):
            worlds.setdefault(int(match["world"]), {})[int(match["rank"])] = entry
    if len(worlds) > 1:
        names = listed([f"{len(ranks)} of world size {world}" for world, ranks in sorted(worlds.items())], 3)
        raise FormatError(
            f"{folder}: files of runs of several sizes ({names}), and nothing says which are meant",
            hint="move the files of one run to a folder of their own",
        )
    ((world, ranks),) = worlds.items()
    if missing := [str(rank) for rank in range(world) if rank not in ranks]:
        raise NotFoundError(
            f"{folder}: the files of {len(missing)} of {world} processes are missing: ranks {listed(missing, 5)}",
            hint="copy model_world_size_*.pt of every node into this folder",
        )
    return [ranks[rank] for rank in range(world)]


def _contents_of_ranks(parts: Sequence[StateDict]) -> Contents:
    first = parts[0]
    contents = Contents(notes=first.notes)
    for part in parts[1:]:
        if difference := first.tensors.keys() ^ part.tensors.keys():
            raise FormatError(
                f"{part.document}: other tensors than in {first.document}, such as {min(difference)}", hint=AGAIN
            )
    for name, tensor in first.tensors.items():
        info = info_of(name, tensor, first.document)
        pieces: dict[Box, Piece] = {}
        for part in parts:
            own = part.tensors[name]
            if info_of(name, own, part.document) != info:
                raise FormatError(
                    f"{part.document}: tensor {name} has another form than in the file of rank 0", hint=AGAIN
                )
            local, box = part_of(name, own, part.document)
            if not box.numel:
                continue
            piece = piece_of(part.archive, local, box)
            if box not in pieces:
                pieces[box] = piece
            elif not is_shared(own) and not same_elements(info, [pieces[box]], [piece]):
                # A buffer is the same for every process; anything else would be a part whose place is not known.
                raise FormatError(
                    f"{part.document}: tensor {name} differs from rank 0's, and does not say which part it is",
                    hint="save the run's weights with FSDP2, or as sharded state dicts",
                )
        contents.add(info, list(pieces.values()), first.document)
    return contents


_DEPTH = 8
_SAVE = "torch.save(model.state_dict(), PATH)"


@dataclass(frozen=True)
class StateDict:
    """The weights of one archive by name, and what was left out or renamed, one sentence each."""

    archive: Archive
    tensors: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def document(self) -> str:
        """Name of the file, for messages."""
        return self.archive.document


def read_state_dict(file: OpenFile) -> StateDict:
    """The weights that a file of ``torch.save`` holds."""
    archive = Archive(file, 0, file.size)
    tensors, others = _walked(archive)
    if () in tensors:
        raise FormatError(f"{archive.document}: a tensor without a name, not a state dict", hint=_SAVE)
    if len(tensors) > LIMITS.tensors:
        raise LimitError(f"{archive.document}: {len(tensors)} tensors; the limit is {LIMITS.tensors}")
    choice = weights_among({path: math.prod(tensor.shape) for path, tensor in tensors.items()}, archive.document)
    named = {name: tensors[path] for path, name in choice.names.items()}
    for name in named:
        check_name(name, archive.document)
    return StateDict(archive, named, choice.notes_with(others))


def _walked(archive: Archive) -> tuple[dict[Path, Any], list[Path]]:
    """Tensors in dictionaries and lists, and where in them other values are."""
    import torch

    tensors: dict[Path, Any] = {}
    others: list[Path] = []
    visited: set[int] = set()  # a dictionary that holds itself would have no end

    def visit(value: Any, path: Path) -> None:
        if isinstance(value, torch.Tensor):
            tensors[path] = value
        elif isinstance(value, dict | list) and id(value) not in visited:
            if len(path) >= _DEPTH:
                raise FormatError(f"{archive.document}: dictionaries more than {_DEPTH} deep ({shown('.'.join(path))})")
            visited.add(id(value))
            for key, item in dict.items(value) if isinstance(value, dict) else enumerate(value):
                visit(item, (*path, str(key)))
        elif not isinstance(value, dict | list | None):
            others.append(path)

    visit(archive.saved, ())
    return tensors, others


def open_path(path: Location, *, hub: str = "") -> PiecewiseCheckpoint:
    """Open one file, or a directory with ``pytorch_model.bin``, an index and shards, or one state dict."""
    path = on_disk(path, READING)
    folder = path if path.is_dir() else path.parent
    weight_map: Mapping[str, str] | None = None
    paths = state_dicts(path) if path.is_dir() else [path]
    if not paths:
        raise NotFoundError(
            f"{path}: no state dict in this folder",
            hint=f"a folder has {TORCH_NAME} or {TORCH_INDEX_NAME} and its shards",
        )
    if path.is_dir() and paths[0].name == TORCH_INDEX_NAME:
        data = read_whole(path / TORCH_INDEX_NAME, LIMITS.index_json_bytes)
        with in_folder(path):
            weight_map = parse_index(data, TORCH_INDEX_NAME, TORCH_SUFFIXES)
        paths = [path / name for name in sorted(set(weight_map.values()))]
    elif len(paths) > 1:
        raise FormatError(
            f"{path}: {len(paths)} state dicts ({listed([file.name for file in paths], 3)}) but no {TORCH_INDEX_NAME}",
            hint="name one of the files",
        )
    with opening() as files:
        parts = [_read(files, file) for file in paths]
        with in_folder(folder):
            if weight_map is not None:
                shards = [(part.document, part.tensors) for part in parts]
                check_index(weight_map, shards, TORCH_INDEX_NAME)
            contents = _contents(parts)
        own = frozenset({TORCH_INDEX_NAME, *(file.name for file in paths)})
        companions = path if path.is_dir() else None
        return PiecewiseCheckpoint("torch", path, files, contents, companions=companions, own=own, hub=hub)


def _read(files: Files, path: Location) -> StateDict:
    file = files.open(path)
    with in_folder(path.parent), explaining(file, own="torch"):
        return read_state_dict(file)


def _contents(parts: Sequence[StateDict]) -> Contents:
    contents = Contents(notes=tuple(note for part in parts for note in part.notes))
    for part in parts:
        for name, tensor in part.tensors.items():
            info = info_of(name, tensor, part.document)
            local, box = part_of(name, tensor, part.document)
            if box.shape != info.shape:
                some, every = list(box.shape), list(info.shape)
                raise FormatError(
                    f"{part.document}: one process's part of a model: of {name}, {some} of {every}",
                    hint="name the folder that holds the parts of all processes",
                )
            contents.add(info, [piece_of(part.archive, local, box)] if info.numel else [], part.document)
    return contents
