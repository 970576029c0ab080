"""The contract of checkpoint formats: named tensors to read span by span, and a plan to write as one stream.

A format is a file or folder of this room and one line in :data:`maskreg.checkpoint.formats.FORMATS`. Reading and
writing are separate: a format that is only read leaves ``plan`` out, and what is made of its checkpoints is written
as safetensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from maskreg.bucket import Location
from maskreg.checkpoint.tasks import Part, Piece, TaskT
from maskreg.limits import Limits
from maskreg.tensors.info import TensorInfo

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Buffer

    Memory = npt.NDArray[np.uint8]


class Checkpoint(Protocol):
    """An open checkpoint. Reading holds no more than the requested span."""

    format: str
    """The format's name in the table."""
    path: Location
    """Directory or file it was opened from."""
    hub: str
    """``org/name@commit`` when it came through the Hugging Face cache, else empty."""
    tensors: Mapping[str, TensorInfo]
    """Every tensor by name, in the order in which the data is stored."""

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor in C order, as unsigned integers of the element's width.

        Safe to call from several threads.

        Args:
            name: of the tensor.
            start: first element.
            stop: one past the last.
            into: uint8 of the span's size, in which the result may lie; a format that has the values in memory
                already returns those.

        Raises:
            KeyError: there is no such tensor.
            ValueError: the span is not within the tensor.
            UsageError: the checkpoint is closed.
            CorruptError: the stored data is shorter than it should be.
            UnavailableError: the disk does not answer.
        """

    def small_files(self) -> Mapping[str, Location]:
        """Config, tokenizer and license files that travel with the weights: name to path."""

    def other_weights(self) -> tuple[str, ...]:
        """Names of what is never copied: other weight files and folders, small files that are too large."""

    def close(self) -> None:
        """Release files and connections; no other thread may still be reading. May be called twice."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


@dataclass(frozen=True)
class Changes:
    """How a new checkpoint differs from the one it is modeled on.

    Attributes:
        replace: new dtype and shape, by the name of a tensor of the source.
        remove: tensors to leave out.
        add: tensors that the source does not have.
        files: small files that win over the source's.
        remove_files: small files of the source to leave out.
    """

    replace: Mapping[str, TensorInfo] = field(default_factory=dict)
    remove: frozenset[str] = frozenset()
    add: tuple[TensorInfo, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    remove_files: frozenset[str] = frozenset()

    def applied_to(self, tensors: Iterable[TensorInfo]) -> tuple[TensorInfo, ...]:
        """Tensors of the source as the new checkpoint has them, in their order; without those that are added."""
        kept = (info for info in tensors if info.name not in self.remove)
        return tuple(replaced(self.replace.get(info.name, info), name=info.name) for info in kept)

    def small_files(self, source: Checkpoint) -> Mapping[str, bytes | Location]:
        """Small files of the new checkpoint: their bytes, or a path to copy from."""
        kept = {name: path for name, path in source.small_files().items() if name not in self.remove_files}
        return {**kept, **self.files}


class CheckpointWriter(Protocol):
    """Takes the data of a plan's tensors as one stream, in the plan's order, and makes a checkpoint of it.

    A context manager: leaving it without an exception checks that every planned byte was written and lets the
    output appear; an exception leaves nothing behind. Not for several threads, but for :meth:`write_at`.
    """

    out: Location
    """Where the checkpoint appears, absolute."""
    skipped_files: tuple[str, ...]
    """Small files of the plan that this output has no room for."""

    @property
    def kept_files(self) -> tuple[str, ...]:
        """At the end, files of a replaced directory that the output does not write; the new one has them too."""

    def write(self, data: Buffer | npt.NDArray[Any]) -> None:
        """Append the next bytes, of any length: they may end within a tensor or go on into the next.

        Args:
            data: C-contiguous; an array's elements are written as they lie in memory.

        Raises:
            NoSpaceError: the disk became full.
            CannotCreateError: the output cannot be written, or the plan has no room for so many bytes.
        """

    def write_at(self, offset: int, data: Buffer | npt.NDArray[Any]) -> None:
        """Write bytes at their place in the stream, in any order; safe to call from several threads.

        Each byte is written once, by this method, by :meth:`write`, or by :meth:`put_at` and :meth:`wrote`.

        Args:
            offset: of the first byte in the stream of all tensors' data.
            data: C-contiguous.

        Raises:
            NoSpaceError: the disk became full.
            CannotCreateError: the output cannot be written, or the plan has no room for these bytes.
        """

    def put_at(self, offset: int, data: Buffer | npt.NDArray[Any]) -> None:
        """Write bytes as :meth:`write_at` does, and leave it to the caller to report them with :meth:`wrote`.

        For work that may run elsewhere: a writer that was entered can be pickled. It has then :meth:`phase`, and this
        method for an output on a disk, or :meth:`send` for one in a bucket. Bytes that are put twice must be the same.

        Args:
            offset: of the first byte in the stream of all tensors' data.
            data: C-contiguous.

        Raises:
            NoSpaceError, CannotCreateError: see :meth:`write_at`.
        """

    def wrote(self, offset: int, size: int) -> None:
        """Count bytes that :meth:`put_at` has written, wherever that was.

        Args:
            offset: of the first byte in the stream.
            size: how many.

        Raises:
            CannotCreateError: the plan has no room for these bytes.
        """

    def pieces(self, tasks: Iterable[TaskT]) -> Iterator[Piece[TaskT]]:
        """Tasks in their order, as their results are written together on the engine at hand.

        Args:
            tasks: in the order of the output.
        """

    def send(self, part: Part, data: bytearray) -> str:
        """Send a part to a bucket; what is sent twice must be the same.

        Args:
            part: as :meth:`pieces` gave it.
            data: of all its tasks; may be changed.

        Returns:
            What the service calls it, for :meth:`sent`.

        Raises:
            UnavailableError, NotAllowedError, NoSpaceError: the service did not take it.
        """

    def sent(self, part: Part, receipt: str) -> None:
        """Take note of a part that :meth:`send` has sent, wherever that was."""

    def phase(self, offset: int) -> int:
        """How far into a page of memory data for :meth:`write_at` best begins, in bytes; then it need not be copied.

        Args:
            offset: of the first byte in the stream.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None: ...


class OutputPlan(Protocol):
    """What a new checkpoint will consist of, decided before a byte of it is written; each format has its own."""

    @property
    def tensors(self) -> Iterable[TensorInfo]:
        """All tensors, in the order in which their data must be written."""

    @property
    def total_bytes(self) -> int:
        """Size of all files together in bytes."""

    def writer(self, out: Location, *, force: bool) -> CheckpointWriter:
        """A writer of this plan; see :func:`maskreg.checkpoint.writing.write_checkpoint`."""


@runtime_checkable
class Remarkable(Protocol):
    """A checkpoint of which something must be said: what was left out, renamed or computed on opening."""

    remarks: tuple[str, ...]
    """One sentence each."""


def remarks_on(checkpoint: Checkpoint) -> tuple[str, ...]:
    """What must be said of a checkpoint, one sentence each."""
    return checkpoint.remarks if isinstance(checkpoint, Remarkable) else ()


@runtime_checkable
class Composed(Protocol):
    """A checkpoint that is made of several, such as an adapter and its base model."""

    locations: tuple[Location, ...]
    """Where they lie."""


def locations_of(checkpoint: Checkpoint) -> tuple[Location, ...]:
    """Where everything lies that decides a checkpoint's values."""
    return checkpoint.locations if isinstance(checkpoint, Composed) else (checkpoint.path,)


@runtime_checkable
class Aliased(Protocol):
    """A checkpoint that knows which names its files hold a tensor under a second time."""

    aliases: Mapping[str, str]
    """Such a name, and that of the tensor."""


def aliases_of(checkpoint: Checkpoint) -> Mapping[str, str]:
    """Names under which a checkpoint's files hold a tensor a second time, and the name that it has here."""
    return checkpoint.aliases if isinstance(checkpoint, Aliased) else {}


@runtime_checkable
class Sharded(Protocol):
    """A checkpoint that knows in which of its files a tensor lies, or what is read to compute it."""

    def place_of(self, name: str, start: int) -> str:
        """The name of the file, or of what takes its part; what has one name is best read by one process.

        Args:
            name: of the tensor.
            start: first element of a block.
        """


def place_of(checkpoint: Checkpoint, name: str, start: int = 0) -> str:
    """The file in which a block of a tensor lies; empty where that is not known. See :class:`Sharded`."""
    if isinstance(checkpoint, Sharded) and name in checkpoint.tensors:
        return checkpoint.place_of(name, start)
    return ""


@runtime_checkable
class Expecting(Protocol):
    """A checkpoint that can fetch what is read soon, so that it is there in time."""

    def expect(self, name: str, start: int, stop: int) -> int:
        """Say that elements ``[start, stop)`` of a tensor are read soon, once for each time that they will be.

        Args:
            name: of the tensor; of one that is not there, nothing is expected.
            start: first element.
            stop: one past the last; of elements beyond the tensor's end, nothing is expected.

        Returns:
            Bytes that are on their way for it; 0 where reading ahead is of no use, as on a disk.
        """


def expect(checkpoint: Checkpoint, name: str, start: int, stop: int) -> int:
    """Hand on to a checkpoint what is read soon; 0 for one that fetches nothing ahead. See :class:`Expecting`."""
    return checkpoint.expect(name, start, stop) if isinstance(checkpoint, Expecting) else 0


@runtime_checkable
class Blockwise(Protocol):
    """A checkpoint of which a block is best read as a whole: it is computed so, or arrives so from a bucket."""

    blockwise: bool
    """Whether it is."""


@runtime_checkable
class Counting(Protocol):
    """A checkpoint that counts something of what is read from it, in whichever process that is."""

    def counted(self, name: str, start: int, stop: int) -> Any:
        """What it has counted of elements that were read in this process: a small value that can be pickled.

        Args:
            name: of the tensor.
            start: first element.
            stop: one past the last.
        """

    def count(self, counted: Any) -> None:
        """Take what was counted, here or in another process; the same counts once, however often it is taken."""


def counted_by(checkpoint: Checkpoint, name: str, start: int, stop: int) -> Any:
    """What a checkpoint has counted of elements that were read; None for one that counts nothing."""
    return checkpoint.counted(name, start, stop) if isinstance(checkpoint, Counting) else None


def give_counted(checkpoint: Checkpoint, counted: Any) -> None:
    """Give a checkpoint what :func:`counted_by` gave, in whichever process."""
    if isinstance(checkpoint, Counting):
        checkpoint.count(counted)


class Reopen(Protocol):
    """Opens a checkpoint that another one is built on."""

    def __call__(self, spec: str, /) -> Checkpoint:
        """Open it.

        Args:
            spec: a path or a hub id, as the other one names it.

        Raises:
            MaskregError: see :func:`maskreg.checkpoint.opening.open_checkpoint`.
        """


class Opener(Protocol):
    """Opens a checkpoint of one format."""

    def __call__(self, path: Location, *, hub: str, limits: Limits, reopen: Reopen) -> Checkpoint:
        """Open the file or directory at ``path``, checking everything but the tensors' data.

        Args:
            path: a file or directory that exists.
            hub: ``org/name@commit`` when known, else empty.
            limits: bounds on what is read.
            reopen: opens what it is built on, such as the base model of an adapter.

        Raises:
            DataError: it breaks the format, or exceeds a limit.
            NotFoundError: a part of it is missing.
        """


@dataclass(frozen=True)
class Format:
    """One line in the table of formats.

    Attributes:
        name: stable and lower-case; what :attr:`Checkpoint.format` says.
        accepts: what a path must be, for messages: ``a .safetensors file, a directory with ...``.
        recognize: whether a file or directory that exists is of this format, judged by names; never raises.
        open: opens one.
        plan: plans an output in this format, modeled on a checkpoint of any format: one of its own keeps its layout
            to the byte where nothing changes. None for a format that is only read.
        hub_files: patterns of the files to download from the hub besides the small ones; empty for a format that the
            hub does not have.
    """

    name: str
    accepts: str
    recognize: Callable[[Location], bool]
    open: Opener
    plan: Callable[[Checkpoint, Changes], OutputPlan] | None = None
    hub_files: tuple[str, ...] = ()
