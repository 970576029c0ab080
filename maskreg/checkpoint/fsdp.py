"""The weights of each process of a run, a file each, as verl saves them: ``model_world_size_4_rank_0.pt`` and others.

Every file is a state dict of ``DTensor`` parts, which say where in the tensor they lie. The configuration and the
tokenizer are in the folder ``huggingface`` beside them.
"""

from __future__ import annotations

from collections.abc import Sequence

from maskreg.bucket import Location
from maskreg.checkpoint.base import Format, Reopen
from maskreg.checkpoint.boxes import Box
from maskreg.checkpoint.files import AGAIN, in_folder
from maskreg.checkpoint.layouts import RANK_FILE, is_fsdp
from maskreg.checkpoint.pickled.tensors import ShardedTensor, StoredTensor, info_of, piece_of
from maskreg.checkpoint.pieces import Contents, Files, Piece, PiecewiseCheckpoint, same_elements
from maskreg.checkpoint.torch_files import StateDict, read_state_dict
from maskreg.errors import FormatError, MaskregError, NotFoundError
from maskreg.limits import LIMITS, Limits
from maskreg.words import listed

COMPANIONS = "huggingface"
"""Where verl saves configuration and tokenizer."""

_CONFIG = "fsdp_config.json"


def recognize(path: Location) -> bool:
    """Whether a directory holds files of single processes, and nothing better."""
    return path.is_dir() and is_fsdp(path)


def open_path(
    path: Location, *, hub: str = "", limits: Limits = LIMITS, reopen: Reopen | None = None
) -> PiecewiseCheckpoint:
    """Open the files of all processes."""
    paths = _rank_files(path)
    files = Files()
    try:
        opened = [files.open(file) for file in paths]
        with in_folder(path):
            parts = [read_state_dict(file, limits) for file in opened]
            contents = _contents(parts, limits)
        beside = path / COMPANIONS
        return PiecewiseCheckpoint(
            "fsdp",
            path,
            files,
            contents,
            companions=beside if beside.is_dir() else path,
            own=frozenset({_CONFIG, *(file.name for file in paths)}),
            hub=hub,
            limits=limits,
        )
    except MaskregError:
        files.close()
        raise


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


def _contents(parts: Sequence[StateDict], limits: Limits) -> Contents:
    first = parts[0]
    contents = Contents(notes=first.notes)
    for part in parts[1:]:
        if difference := first.tensors.keys() ^ part.tensors.keys():
            raise FormatError(
                f"{part.archive.file.path.name}: other tensors than in {first.archive.file.path.name}, "
                f"such as {min(difference)}",
                hint=AGAIN,
            )
    for name, tensor in first.tensors.items():
        info = info_of(name, tensor, first.archive.file.path.name, limits)
        pieces: dict[Box, Piece] = {}
        for part in parts:
            document = part.archive.file.path.name
            own = part.tensors[name]
            if info_of(name, own, document, limits) != info:
                raise FormatError(f"{document}: tensor {name} has another form than in the file of rank 0", hint=AGAIN)
            box, local = _box(own, document, name)
            if not box.numel:
                continue
            piece = piece_of(part.archive, local, box)
            if box not in pieces:
                pieces[box] = piece
            elif isinstance(own, StoredTensor) and not same_elements(info, [pieces[box]], [piece]):
                # A buffer is the same for every process; anything else would be a part whose place is not known.
                raise FormatError(
                    f"{document}: tensor {name} differs from the tensor of rank 0, and does not say which part it is",
                    hint="save the run's weights with FSDP2, or as sharded state dicts",
                )
        contents.add(info, list(pieces.values()), first.archive.file.path.name)
    return contents


def _box(tensor: StoredTensor | ShardedTensor, document: str, name: str) -> tuple[Box, StoredTensor]:
    if isinstance(tensor, StoredTensor):
        return Box((0,) * len(tensor.shape), tensor.shape), tensor
    box = tensor.box()
    if box.shape != tensor.local.shape:
        raise FormatError(
            f"{document}: tensor {name}: the part has the shape {tensor.local.shape}, and its place {box.shape}",
            hint=AGAIN,
        )
    return box, tensor.local


FSDP = Format(
    name="fsdp",
    accepts="a directory with model_world_size_N_rank_K.pt of every process",
    recognize=recognize,
    open=open_path,
)
"""The line of the table of formats."""
