"""The contract of checkpoint formats: named tensors to read span by span.

A format is a file here and one line in :data:`maskreg.checkpoint.opening.FORMATS`. What is made of checkpoints
in any format is written as safetensors: :mod:`maskreg.checkpoint.plan`, :mod:`maskreg.checkpoint.writer`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.bucket import Location
from maskreg.closing import Closing
from maskreg.tensors.info import TensorInfo

Memory = npt.NDArray[np.uint8]


class Checkpoint(Closing):
    """An open checkpoint. Reading holds no more than the requested span.

    Attributes:
        format: the format's name in the table.
        path: directory or file that it was opened from.
        hub: ``org/name@commit`` when it came through the Hugging Face cache, else empty.
        tensors: every tensor by name, in the order in which the data is stored.
        remarks: what was left out, renamed or computed on opening, one sentence each.
        aliases: names under which the files hold a tensor a second time, and its name in ``tensors``.
        blockwise: whether a block is best read as a whole: it is computed so, comes so from a bucket, or is in memory.
    """

    format: str
    path: Location
    hub: str = ""
    tensors: Mapping[str, TensorInfo]
    remarks: tuple[str, ...] = ()
    aliases: Mapping[str, str] = MappingProxyType({})
    blockwise: bool = False

    @abstractmethod
    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor in C order, as unsigned integers of the element's width.

        Safe to call from several threads.

        ``into``: uint8 of the span's size, memory for the result; a format that has the values in memory returns those
        instead.

        Raises:
            KeyError, ValueError: there is no such tensor, or the span is not within it.
            UsageError: the checkpoint is closed.
            CorruptError, UnavailableError: the stored data is shorter than it should be, or the disk does not answer.
        """

    def map(self) -> None:
        """Read in place from now on, where that can be done: from files that are mapped into memory.

        It saves a block's memory on each thread. But where a page cannot be read, because the file was cut short
        meanwhile, the process ends.
        """

    def small_files(self) -> Mapping[str, Location]:
        """Config, tokenizer and license files that travel with the weights: name to path."""
        return {}

    def other_weights(self) -> tuple[str, ...]:
        """Names of what is never copied: other weight files and folders, small files that are too large."""
        return ()

    def expect(self, name: str, start: int, stop: int) -> int:
        """Announce that elements ``[start, stop)`` of a tensor are read soon, once for each time that they will be.

        Elements beyond the tensor's end, or of a tensor that is not there, are ignored.

        Returns:
            Bytes that are on their way for it; 0 where reading ahead is of no use, as on a disk.
        """
        return 0
