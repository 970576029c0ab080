"""What a checkpoint is to the rest of maskreg: named tensors, read run by run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from maskreg.tensors.info import TensorInfo

if TYPE_CHECKING:
    import numpy.typing as npt

INDEX_NAME = "model.safetensors.index.json"
"""The file that says which tensor is in which shard."""


@dataclass(frozen=True)
class Shard:
    """One weight file of a checkpoint.

    Attributes:
        file_name: without directories.
        tensors: its tensors in the order of their data.
        header: the safetensors header exactly as stored, its 8 length bytes included.
        metadata: the header's ``__metadata__``.
    """

    file_name: str
    tensors: tuple[TensorInfo, ...]
    header: bytes
    metadata: Mapping[str, str]

    @property
    def data_bytes(self) -> int:
        """Size of the data behind the header in bytes."""
        return sum(info.nbytes for info in self.tensors)


class Checkpoint(Protocol):
    """A checkpoint on disk. Reading never maps files and never holds more than the run asked for."""

    path: Path
    """Directory or file it was opened from."""
    hub: str
    """``org/name@commit`` when it came through the Hugging Face cache, else empty."""
    shards: tuple[Shard, ...]
    index: bytes
    """``model.safetensors.index.json`` exactly as stored; empty for an unsharded checkpoint."""
    tensors: Mapping[str, TensorInfo]
    """Every tensor by name: shard by shard, by place in the file."""

    def read(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor in C order, as unsigned integers of the element's width.

        Safe to call from several threads.

        Raises:
            KeyError: there is no such tensor.
            ValueError: the run is not within the tensor, or the checkpoint is closed.
            CorruptError: the file has become shorter than its header says.
            UnavailableError: the disk does not answer.
        """

    def small_files(self) -> Mapping[str, Path]:
        """Config, tokenizer and license files that travel with the weights: name to path."""

    def other_weights(self) -> tuple[str, ...]:
        """Names of what is never copied: other weight files and folders, small files that are too large."""

    def close(self) -> None:
        """Release file handles."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...
