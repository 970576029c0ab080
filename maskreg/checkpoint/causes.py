"""What a file or folder really is that cannot be opened as a checkpoint: a table of what people mistake for one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection
from typing import NamedTuple

from maskreg.bucket import Location
from maskreg.checkpoint.files import AGAIN
from maskreg.checkpoint.layouts import is_adapter, is_dcp, is_fsdp, is_safetensors, is_torch
from maskreg.errors import FormatError
from maskreg.tensors.names import shown
from maskreg.words import listed, natural

HEAD_BYTES = 512
"""Bytes from the beginning of a file that say what it is."""

_SAFETENSORS = "use the safetensors checkpoint in 16 bits"


class FileCause(NamedTuple):
    """A file that is not what its name says.

    Attributes:
        name: of the cause.
        test: whether it is this, by its first bytes and its size.
        fault: what it is; continues a sentence that begins with its path.
        hint: the next step; ``{folder}`` is where it lies, ``{path}`` its path and ``{stem}`` that without its suffix,
            all quoted for a shell.
    """

    name: str
    test: Callable[[bytes, int], bool]
    fault: str
    hint: str


class FolderCause(NamedTuple):
    """A folder that holds weights, but none that can be read.

    Attributes:
        name: of the cause.
        files: a pattern of names that gives it away.
        fault: what it holds; ``{names}`` are the first of these names.
        hint: the next step.
    """

    name: str
    files: re.Pattern[str]
    fault: str
    hint: str


def _begins(*signs: bytes) -> Callable[[bytes, int], bool]:
    return lambda head, size: head.lstrip().lower().startswith(signs)


FILE_CAUSES = (
    FileCause("empty", lambda head, size: not size, "the file is empty", AGAIN),
    FileCause(
        "lfs-pointer",
        _begins(b"version https://git-lfs.github.com/"),
        "a Git LFS pointer, not the weights",
        "git -C {folder} lfs pull",
    ),
    FileCause(
        "html",
        _begins(b"<!doctype html", b"<html", b"<?xml"),
        "a web page, not the weights: the download failed, perhaps for want of a login",
        "download the checkpoint again, for instance with hf download",
    ),
    FileCause(
        "index",
        lambda head, size: head.lstrip().startswith(b"{") and b'"weight_map"' in head,
        "the index of a checkpoint, not weights",
        "name the folder that it is in: {folder}",
    ),
    FileCause(
        "json",
        _begins(b"{"),
        "a JSON text, not the weights: perhaps the error message of a failed download",
        "download the checkpoint again, for instance with hf download",
    ),
    FileCause(
        "old-torch",
        lambda head, size: head.startswith(b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"),
        "a file of torch.save as it was before torch 1.6",
        'python -c "import sys, torch; torch.save(torch.load(sys.argv[1], weights_only=True), sys.argv[2])" {path} '
        "{stem}-new.bin",
    ),
    FileCause(
        "torch",
        lambda head, size: head.startswith(b"PK\x03\x04"),
        "a file of torch.save, not safetensors, as its name says",
        "mv {path} {stem}.bin",
    ),
    FileCause(
        "pickle",
        lambda head, size: head.startswith((b"\x80\x02", b"\x80\x04", b"\x80\x05")),
        "a pickle that torch.save did not write",
        "save the weights with torch.save(model.state_dict(), PATH)",
    ),
    FileCause("gguf", lambda head, size: head.startswith(b"GGUF"), "a GGUF file, not safetensors", _SAFETENSORS),
    FileCause(
        "zeros",
        lambda head, size: not any(head),
        "the file begins with zeros: a download or copy that did not finish",
        AGAIN,
    ),
)
"""Files, the first that fits."""

FOLDER_CAUSES = (
    FolderCause(
        "trainer",
        re.compile(r".+\.(bin|pt|pth|ckpt)"),
        "no weights, only what a trainer keeps beside them ({names})",
        "name the folder that the model itself was saved to",
    ),
    FolderCause(
        "gguf", re.compile(r".+\.(gguf|ggml)"), "no safetensors weights, only GGUF files ({names})", _SAFETENSORS
    ),
    FolderCause(
        "other",
        re.compile(r".+\.(h5|msgpack|onnx|npz)"),
        "no safetensors weights, only weights of another library ({names})",
        _SAFETENSORS,
    ),
)
"""Folders, the first that fits."""


def explained(error: FormatError, path: Location, head: bytes, size: int, *, own: str = "") -> FormatError:
    """The error for a file that breaks the format: a known cause, else ``error`` itself.

    Args:
        error: what the format's reader found.
        path: of the file.
        head: its first bytes, up to :data:`HEAD_BYTES`.
        size: of the file in bytes.
        own: the cause that is what the reader expects, and so none.
    """
    # Where a header begins as it should, its first bytes are a length, and mean nothing else.
    for cause in () if head[4:9] == b"\0\0\0\0{" else FILE_CAUSES:
        if cause.name != own and cause.test(head, size):
            paths = {"folder": path.parent, "path": path, "stem": path.with_suffix("")}
            hint = cause.hint.format(**{name: shlex.quote(str(value)) for name, value in paths.items()})
            return FormatError(f"{path.name}: {cause.fault}", hint=hint)
    return error


def why_no_weights(folder: Location) -> tuple[str, str]:
    """What a folder holds instead of weights that can be read, and the next step; two empty texts when unknown."""
    names = sorted((entry.name for entry in folder.iterdir()), key=natural)
    if not names:
        return "an empty folder", "name the folder that the run wrote its checkpoint to"
    for cause in FOLDER_CAUSES:
        if signs := [name for name in names if cause.files.fullmatch(name)]:
            return cause.fault.format(names=listed([shown(sign) for sign in signs], 2)), cause.hint
    if inner := _folders_of_weights(folder, names):
        step = f"name one of them: {folder / inner[-1]}"
        return f"no weights here, but in {listed(inner, 3)}", step
    return "", ""


def _folders_of_weights(folder: Location, names: Collection[str]) -> list[str]:
    return [name for name in names if (folder / name).is_dir() and _holds_weights(folder / name)]


def _holds_weights(folder: Location) -> bool:
    return is_safetensors(folder) or is_adapter(folder) or is_dcp(folder) or is_fsdp(folder) or is_torch(folder)
