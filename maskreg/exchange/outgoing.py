"""What an artifact changes, as exchange formats write it: spans of changed tensors, checked before and after."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import xxhash

from maskreg.artifact.layout import FILES, REVERSE_FILES
from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.files import check_small_file
from maskreg.errors import UsageError
from maskreg.exchange.base import lineage_of
from maskreg.mask import unpack
from maskreg.parallel import Buffers, ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import TensorInfo, blocks_of, numel_of
from maskreg.update.delta import Change, Delta, SpanDelta
from maskreg.update.small_files import SmallFiles, small_files_of
from maskreg.update.verified import VerifiedSource

ResultT = TypeVar("ResultT")


class ChangedSpan(NamedTuple):
    """Elements of a tensor, from ``start`` on, that an artifact changes; the arrays are valid while it is worked on.

    Attributes:
        before: unsigned integers of the element's width, the source's.
    """

    info: TensorInfo
    start: int
    before: npt.NDArray[Any]
    after: npt.NDArray[Any]


class Changes(NamedTuple):
    """The changed elements of a span: their flat indices in the tensor, and their bits in source and target."""

    indices: npt.NDArray[np.int64]
    before: npt.NDArray[Any]
    after: npt.NDArray[Any]


def changes_in(span: ChangedSpan) -> Changes:
    """The changed elements of a span, in order."""
    local = np.flatnonzero(span.before != span.after)
    return Changes(local + span.start, span.before[local], span.after[local])


class Outgoing:
    """An artifact as exchange formats take it; ``with_code`` writes small files that can run code too."""

    def __init__(
        self,
        artifact: Artifact,
        source: Checkpoint | None = None,
        *,
        with_code: bool = False,
        progress: Progress = SILENT,
    ) -> None:
        """Check that the artifact can be written."""
        self.artifact = artifact
        self.source = source
        self._with_code = with_code
        self.progress = progress
        self._jobs = worker_count(None)
        self._buffers = Buffers()
        if source is None:
            artifact.require("mask")
        else:
            self._delta = Delta(artifact)
            self._verified = VerifiedSource(artifact, source, jobs=self._jobs)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Report the beginning of the work: the bytes of the changed tensors, or the coordinates of the masks.

        At the end, hash what was not read of the artifact: entered last, so that nothing appears of a damaged one.
        """
        if self.source is None:
            total = sum(row.numel for row in self.masked.values())
        else:
            total = sum(info.nbytes for info in self.changed.values())
        self.progress.start("convert", total)
        yield
        self.artifact.verify_rest(jobs=self._jobs)

    # Values

    @cached_property
    def changed(self) -> Mapping[str, TensorInfo]:
        """Every tensor whose bits change, by name, tied names included."""
        infos: dict[str, TensorInfo] = {}
        for tensor in self._delta.values():
            if tensor.change is Change.KEEP:
                continue
            if tensor.before is None or tensor.before != tensor.after:
                verb = "adds" if tensor.before is None else "removes" if tensor.after is None else "reshapes or retypes"
                raise UsageError(
                    f"the artifact {verb} tensor {tensor.name}, which no patch of values can hold",
                    hint="apply it, which writes the whole checkpoint",
                )
            infos[tensor.name] = tensor.before
        return infos

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """How many elements change, by the names of :attr:`changed`."""
        tensors = [self._delta[name] for name in self.changed]
        coded = {tensor.name: tensor.row.differing for tensor in tensors if tensor.change is Change.DECODE}
        uncounted = [name for name in self.changed if name not in coded]
        for span, count in self.map(lambda span: np.count_nonzero(span.before != span.after), uncounted, silent=True):
            coded[span.name] = coded.get(span.name, 0) + int(count)
        return {name: coded.get(name, 0) for name in self.changed}

    def map(
        self, work: Callable[[ChangedSpan], ResultT], names: list[str], *, silent: bool = False
    ) -> Generator[tuple[SpanDelta, ResultT], None, None]:
        """Call ``work`` on every span of changed tensors, on threads, and yield the results in order."""

        def on_span(span: SpanDelta) -> tuple[SpanDelta, ResultT]:
            info = self.changed[span.name]
            room = self._buffers.bytes("source", numel_of(span) * info.item_bytes)
            before = self._verified.read(span.name, span.start, span.stop, room)
            after = span.result(before, self._delta.codec.decode, self._buffers)
            return span, work(ChangedSpan(info, span.start, before, after))

        every = (span for name in names for span in self._delta[name].spans())
        spans = self._verified.ahead(every, lambda span: (span.name, span.start, span.stop))
        with closing(ordered(on_span, spans, jobs=self._jobs, size=numel_of)) as results:
            for span, result in results:
                yield span, result
                if not silent:
                    self.progress.advance(numel_of(span) * span.item_bytes)

    # Masks

    @cached_property
    def masked(self) -> Mapping[str, Tensor]:
        """Every tensor with a mask by name, tied names included: its row of the tensor table."""
        return {name: self.artifact.by_name[name] for name in self.artifact.mask}

    def bits(self, name: str) -> Iterator[npt.NDArray[np.bool_]]:
        """The mask of a tensor in blocks; none for a tensor without elements."""
        row = self.masked[name]
        for start, stop in blocks_of(row.numel):
            yield unpack(self.artifact.mask_bits(row, start, stop), stop - start)
            self.progress.advance(stop - start)

    # Beside the tensors

    @cached_property
    def files(self) -> SmallFiles:
        """Small files of the target that differ from the source's; those that can run code only ``with_code``."""
        assert self.source is not None
        files = small_files_of(self._delta, self.source, with_code=self._with_code)
        for name, data in files.written.items():
            check_small_file(name, len(data))
        return files

    def lineage(self) -> str:
        """The text that says where the values come from; see :mod:`maskreg.exchange.base`."""
        checks = {name: row.target_fingerprint for name, row in self.artifact.by_name.items() if row.target_fingerprint}
        removed = tuple(sorted(self._file_names(REVERSE_FILES) - self._file_names(FILES)))
        return lineage_of(self.artifact.digest, self.artifact.manifest, checks, removed_files=removed)

    def mask_lineage(self) -> str:
        """The same for masks; reads all of them, since a file begins with its metadata."""
        checks = {}
        for name, row in self.masked.items():
            hasher = xxhash.xxh3_128()
            for start, stop in blocks_of(row.numel):
                hasher.update(self.artifact.mask_bits(row, start, stop).data)
            checks[name] = hasher.hexdigest()
        return lineage_of(self.artifact.digest, self.artifact.manifest, checks)

    def _file_names(self, prefix: str) -> set[str]:
        keys = (entry.key for entry in self.artifact.manifest.objects)
        return {key.removeprefix(prefix) for key in keys if key.startswith(prefix)}
