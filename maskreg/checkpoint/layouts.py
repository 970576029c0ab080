"""What a checkpoint's folder holds, judged by names: of several formats in one folder, one is the checkpoint.

What cannot be opened is explained: a table of files and folders that are often mistaken for checkpoints.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from maskreg.bucket import Location
from maskreg.checkpoint.files import AGAIN, OpenFile, is_plain_name, names_in
from maskreg.document import parse_object
from maskreg.errors import FormatError, LimitError, stating
from maskreg.limits import LIMITS
from maskreg.tensors.info import check_name, shown
from maskreg.words import listed, natural

_VALUES = 5  # JSON values for each tensor; there should be one


def parse_index(data: bytes, name: str, suffixes: tuple[str, ...]) -> Mapping[str, str]:
    """Read a weight index."""
    with stating(hint="save or download it again"):
        document = parse_object(data, name, max_bytes=LIMITS.index_json_bytes, max_values=_VALUES * LIMITS.tensors)
    weight_map = document.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise FormatError(f"{name}: weight_map must be an object that names at least one tensor")
    if len(weight_map) > LIMITS.tensors:
        raise LimitError(f"{name}: {len(weight_map)} tensors; the limit is {LIMITS.tensors}")
    for tensor in weight_map:
        check_name(tensor, name)
    if not all(isinstance(value, str) for value in weight_map.values()):
        raise FormatError(f"{name}: weight_map must name a file for every tensor")
    for shard in set(weight_map.values()):
        if not is_plain_name(shard) or not shard.endswith(suffixes):
            raise FormatError(f"{name}: not the plain name of a shard: {shown(shard)}")
    return weight_map


def check_index(weight_map: Mapping[str, str], shards: Iterable[tuple[str, Iterable[str]]], name: str) -> None:
    """Check that index and shards agree."""
    stored: dict[str, str] = {}
    for shard, tensors in shards:
        for tensor in tensors:
            if tensor in stored:
                raise FormatError(f"tensor {tensor} is in {stored[tensor]} and in {shard}")
            stored[tensor] = shard
    for tensor in sorted(stored.keys() | weight_map.keys()):
        listed, actual = weight_map.get(tensor), stored.get(tensor)
        if listed != actual:
            raise FormatError(
                f"{name}: tensor {tensor} is listed in {listed or 'no shard'} and found in {actual or 'none'}",
                hint="save the model again, so that the index fits its files, or download the checkpoint again",
            )


INDEX_NAME = "model.safetensors.index.json"
"""The file that says which tensor is in which shard."""


RANK_FILE = re.compile(r"model_world_size_(?P<world>\d{1,6})_rank_(?P<rank>\d{1,6})\.pt")
"""The weights of one process of a run, as verl names them."""


TORCH_NAME = "pytorch_model.bin"
"""The weight file of a state dict that is not sharded."""

TORCH_INDEX_NAME = "pytorch_model.bin.index.json"
"""The file that says which tensor is in which shard."""

TORCH_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
"""How the names of state dicts end."""

# What trainers save beside the weights.
_BESIDE = re.compile(r"(training_args|scheduler|scaler|rng_state|random_states|extra_state|.*optim.*)([._-].*)?\.\w+")


def is_safetensors(path: Location) -> bool:
    """Whether a path is a safetensors file, or a folder with some or an index."""
    if not path.is_dir():
        return path.suffix == ".safetensors"
    return bool(_safetensors(names_in(path)))


def is_dcp(folder: Location) -> bool:
    """Whether a folder holds a distributed checkpoint of PyTorch, or a part of one, and no other weights to prefer."""
    names = names_in(folder)
    return any(name == ".metadata" or name.endswith(".distcp") for name in names) and not _safetensors(names)


def is_fsdp(folder: Location) -> bool:
    """Whether a folder holds the weights of each process of a run, and no others to prefer."""
    names = names_in(folder)
    return any(map(RANK_FILE.fullmatch, names)) and not _safetensors(names) and not is_dcp(folder)


def is_torch(path: Location) -> bool:
    """Whether a path is a state dict of ``torch.save``, or a folder with some and no other weights to prefer."""
    if not path.is_dir():
        return path.suffix in TORCH_SUFFIXES
    others = _safetensors(names_in(path)) or is_dcp(path) or is_fsdp(path)
    return not others and bool(state_dicts(path))


def state_dicts(folder: Location) -> list[Location]:
    """The one file or index of a state dict in a folder, or all that can be one."""
    names = names_in(folder)
    for name in (TORCH_NAME, TORCH_INDEX_NAME):
        if name in names:
            return [folder / name]
    return [folder / name for name in sorted(names) if name.endswith(TORCH_SUFFIXES) and not _BESIDE.fullmatch(name)]


def _safetensors(names: frozenset[str]) -> set[str]:
    return {name for name in names if ".safetensors" in name}


_HEAD_BYTES = 512  # from the beginning of a file, which say what it is
_SAFETENSORS = "use the safetensors checkpoint in 16 bits"


_DOWNLOAD = "download the checkpoint again, for instance with hf download"

_FILE_CAUSES = {
    "empty": (rb"\Z", "the file is empty", AGAIN),
    "lfs": (rb"\s*version https://git-lfs", "a Git LFS pointer, not the weights", "git -C {folder} lfs pull"),
    "html": (
        rb"(?i)\s*(<!doctype html|<html|<\?xml)",
        "a web page, not the weights: the download failed, perhaps for want of a login",
        _DOWNLOAD,
    ),
    "index": (
        rb'(?s)\s*\{.*"weight_map"',
        "the index of a checkpoint, not weights",
        "name the folder that it is in: {folder}",
    ),
    "json": (rb"\s*\{", "a JSON text, not the weights: perhaps the error message of a failed download", _DOWNLOAD),
    "old-torch": (
        rb"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19",
        "a file of torch.save as it was before torch 1.6",
        'python -c "import sys, torch; torch.save(torch.load(sys.argv[1], weights_only=True), sys.argv[2])" {path} '
        "{stem}-new.bin",
    ),
    "torch": (rb"PK\x03\x04", "a file of torch.save, not safetensors, as its name says", "mv {path} {stem}.bin"),
    "pickle": (
        rb"\x80[\x02\x04\x05]",
        "a pickle that torch.save did not write",
        "save the weights with torch.save(model.state_dict(), PATH)",
    ),
    "gguf": (rb"GGUF", "a GGUF file, not safetensors", _SAFETENSORS),
    "zeros": (rb"\0*\Z", "the file begins with zeros: a download or copy that did not finish", AGAIN),
}
"""Files that are not what their names say, the first that fits: how they begin, what they are, and the next step."""

FOLDER_CAUSES = {
    re.compile(r".+\.(bin|pt|pth|ckpt)"): (
        "no weights, only what a trainer keeps beside them ({names})",
        "name the folder that the model itself was saved to",
    ),
    re.compile(r".+\.(gguf|ggml)"): ("no safetensors weights, only GGUF files ({names})", _SAFETENSORS),
    re.compile(r".+\.(h5|msgpack|onnx|npz)"): (
        "no safetensors weights, only weights of another library ({names})",
        _SAFETENSORS,
    ),
}
"""What a folder holds that has no weights to read, by its files' names: the first that fits, and the next step."""


@contextmanager
def explaining(file: OpenFile, *, own: str = "") -> Iterator[None]:
    """Where a file breaks the format and begins like another kind than ``own``, say of which kind it is."""
    try:
        yield
    except FormatError as error:
        head, path = bytearray(min(_HEAD_BYTES, file.size)), file.path
        file.fill(memoryview(head), 0)
        # Where a header begins as it should, its first bytes are a length, and mean nothing else.
        for name, (begin, fault, hint) in {} if head[4:9] == b"\0\0\0\0{" else _FILE_CAUSES.items():
            if name != own and re.match(begin, head):
                paths = {"folder": path.parent, "path": path, "stem": path.with_suffix("")}
                hint = hint.format(**{key: shlex.quote(str(value)) for key, value in paths.items()})
                raise FormatError(f"{path.name}: {fault}", hint=hint) from error
        raise


def why_no_weights(folder: Location) -> tuple[str, str]:
    """What a folder holds instead of weights that can be read, and the next step; two empty texts when unknown."""
    names = sorted((entry.name for entry in folder.iterdir()), key=natural)
    if not names:
        return "an empty folder", "name the folder that the run wrote its checkpoint to"
    for files, (fault, hint) in FOLDER_CAUSES.items():
        if signs := [name for name in names if files.fullmatch(name)]:
            return fault.format(names=listed([shown(sign) for sign in signs], 2)), hint
    tests = (is_safetensors, is_dcp, is_fsdp, is_torch)
    folders = [name for name in names if (folder / name).is_dir()]
    if inner := [name for name in folders if any(test(folder / name) for test in tests)]:
        return f"no weights here, but in {listed(inner, 3)}", f"name one of them: {folder / inner[-1]}"
    return "", ""
