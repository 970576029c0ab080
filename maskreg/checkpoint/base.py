"""The contract of checkpoint formats: named tensors to read span by span, and a plan to write as one stream.

A format is a file or folder of this room and one line in :data:`maskreg.checkpoint.opening.FORMATS`. Reading and
writing are separate: a format that is only read leaves ``plan`` out, and what is made of its checkpoints is written
as safetensors.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, TypeVar

from maskreg.bucket import Location
from maskreg.closing import Closing
from maskreg.limits import Limits
from maskreg.tensors.info import TensorInfo, numel_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Buffer

    Memory = npt.NDArray[np.uint8]


class Task(Protocol):
    """Elements of a tensor, and where what becomes of them lies in the stream of all tensors' data."""

    @property
    def start(self) -> int:
        """The first element."""

    @property
    def stop(self) -> int:
        """One past the last."""

    @property
    def offset(self) -> int:
        """Of the first byte of the result."""

    @property
    def nbytes(self) -> int:
        """Size of the result; 0 for a task that only checks."""


TaskT = TypeVar("TaskT", bound=Task)


class Part(NamedTuple):
    """A part of an object that is uploaded.

    Attributes:
        file: number of the object in the output.
        number: of the part in it, from 0 on.
    """

    file: int
    number: int


class Piece(NamedTuple, Generic[TaskT]):
    """Tasks whose results are written together.

    Attributes:
        part: that they make; None where each is written for itself.
        start, stop: bytes of the stream that the part has. The first and the last task may reach beyond them.
    """

    tasks: tuple[TaskT, ...]
    part: Part | None = None
    start: int = 0
    stop: int = 0

    def own(self, task: TaskT) -> slice:
        """Those bytes of a task's result that the part has."""
        return slice(max(0, self.start - task.offset), min(task.nbytes, self.stop - task.offset))

    @property
    def numel(self) -> int:
        """Elements of all tasks."""
        return sum(map(numel_of, self.tasks))


def single(tasks: Iterable[TaskT]) -> Iterator[Piece[TaskT]]:
    """Each task for itself."""
    return (Piece((task,)) for task in tasks)


class Checkpoint(Closing):
    """An open checkpoint. Reading holds no more than the requested span.

    Attributes:
        format: the format's name in the table.
        path: directory or file that it was opened from.
        hub: ``org/name@commit`` when it came through the Hugging Face cache, else empty.
        tensors: every tensor by name, in the order in which the data is stored.
        remarks: what was left out, renamed or computed on opening, one sentence each.
        aliases: names under which the files hold a tensor a second time, and its name in ``tensors``.
        blockwise: whether a block is best read as a whole: it is computed so, or comes so from a bucket.
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

        Args:
            name: of the tensor.
            start: first element.
            stop: one past the last.
            into: uint8 of the span's size, memory for the result; a format that has the values in memory returns
                those instead.

        Raises:
            KeyError: there is no such tensor.
            ValueError: the span is not within the tensor.
            UsageError: the checkpoint is closed.
            CorruptError: the stored data is shorter than it should be.
            UnavailableError: the disk does not answer.
        """

    def small_files(self) -> Mapping[str, Location]:
        """Config, tokenizer and license files that travel with the weights: name to path."""
        return {}

    def other_weights(self) -> tuple[str, ...]:
        """Names of what is never copied: other weight files and folders, small files that are too large."""
        return ()

    def locations(self) -> tuple[Location, ...]:
        """Where everything lies that decides the values, such as an adapter and its base model."""
        return (self.path,)

    def place_of(self, name: str, start: int = 0) -> str:
        """The file that a block of a tensor is read from, or what takes its part; empty where unknown.

        Blocks of one place are best read by one process.
        """
        return ""

    def expect(self, name: str, start: int, stop: int) -> int:
        """Announce that elements ``[start, stop)`` of a tensor are read soon, once for each time that they will be.

        Elements beyond the tensor's end, or of a tensor that is not there, are ignored.

        Returns:
            Bytes that are on their way for it; 0 where reading ahead is of no use, as on a disk.
        """
        return 0

    def counted(self, name: str, start: int, stop: int) -> Any:
        """Figures of elements that were read in this process, a small value that can be pickled; None for none."""
        return None

    def count(self, counted: Any) -> None:
        """Take what :meth:`counted` gave, here or in another process; the same figures count once."""


class Wrapped(Checkpoint):
    """A checkpoint in front of another one, which is closed with it; what a subclass does not say is the other's."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.format, self.path, self.hub = checkpoint.format, checkpoint.path, checkpoint.hub
        self.tensors, self.remarks, self.aliases = checkpoint.tensors, checkpoint.remarks, checkpoint.aliases
        self.blockwise = checkpoint.blockwise
        self._checkpoint = checkpoint

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements of a tensor."""
        return self._checkpoint.read(name, start, stop, into)

    def small_files(self) -> Mapping[str, Location]:
        """Files that travel with the weights."""
        return self._checkpoint.small_files()

    def other_weights(self) -> tuple[str, ...]:
        """Names of what is never copied."""
        return self._checkpoint.other_weights()

    def locations(self) -> tuple[Location, ...]:
        """Where everything lies that decides the values."""
        return self._checkpoint.locations()

    def place_of(self, name: str, start: int = 0) -> str:
        """The file that a block is read from."""
        return self._checkpoint.place_of(name, start)

    def expect(self, name: str, start: int, stop: int) -> int:
        """Announce what is read soon."""
        return self._checkpoint.expect(name, start, stop)

    def close(self) -> None:
        """Close the checkpoint."""
        self._checkpoint.close()


@dataclass(frozen=True)
class Changes:
    """How a new checkpoint differs from the one it is modeled on.

    Attributes:
        replace: new dtype and shape, by the name of a tensor of the source.
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
        plan: plans an output in this format, modeled on a checkpoint of any format: one of its own keeps its layout to
            the byte where nothing changes. None for a format that is only read.
        hub_files: patterns of the files to download from the hub besides the small ones; empty for a format that the
            hub does not have.
    """

    name: str
    accepts: str
    recognize: Callable[[Location], bool]
    open: Opener
    plan: Callable[[Checkpoint, Changes], OutputPlan] | None = None
    hub_files: tuple[str, ...] = ()
