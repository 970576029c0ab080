"""The figures of one run, as JSON keeps them: seconds of every repetition, sizes, and what they depend on.

Everything that the table and the page say is computed from these, so that they cannot disagree.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from maskreg.errors import FormatError, NotFoundError
from scripts.bench.limits import Limits

SCHEMA = 1

BUSY_LOAD, BUSY_CORES = 0.5, 0.2
"""Load average, and cores that other processes use, above which a machine counts as busy."""

KindT = TypeVar("KindT")


@dataclass(frozen=True)
class Sample:
    """Repetitions of the same work, in the order in which they ran; see :class:`~scripts.bench.processes.Cost`."""

    cpu: tuple[float, ...]
    wall: tuple[float, ...]

    @property
    def least(self) -> float:
        """CPU seconds of the best repetition."""
        return min(self.cpu)

    @property
    def middle(self) -> float:
        """Median CPU seconds."""
        return median(self.cpu)

    @property
    def least_wall(self) -> float:
        """Seconds of the best repetition."""
        return min(self.wall)

    @property
    def middle_wall(self) -> float:
        """Median seconds."""
        return median(self.wall)


@dataclass(frozen=True)
class Coding:
    """A codec on a pair.

    Attributes:
        codec: its name.
        ours: whether it is one of maskreg's.
        kernels: level of maskreg's compiled kernels; empty for the best that the machine has, and for peers.
        threads: that code blocks in parallel.
        bytes: of all coded blocks.
        encode, decode: of all blocks, in buffers that are used again; None if it did not run.
        missing: why it did not run; empty if it did.
    """

    codec: str
    ours: bool
    kernels: str = ""
    threads: int = 1
    bytes: int = 0
    encode: Sample | None = None
    decode: Sample | None = None
    missing: str = ""


@dataclass(frozen=True)
class Pair:
    """A pair of checkpoints, and every codec on it.

    Attributes:
        name: short.
        origin: how the pair was made, in a few words.
        kind: ``generated``, ``real``, or ``real step`` for one step of a real run.
        params: coordinates of one checkpoint.
        largest: coordinates of its largest tensor.
        density: coordinates whose bits differ / coordinates.
        limits: entropies, in bits for each coordinate.
        mask_bits: the stored mask, in bits for each coordinate.
        memcpy: copying one checkpoint in memory.
        codings: every codec.
        encode_shares, decode_shares: CPU seconds of each compiled kernel in one repetition of maskreg's codec, and,
            under the key ``rest``, of Python and NumPy.
    """

    name: str
    origin: str
    kind: str
    params: int
    largest: int
    density: float
    limits: Limits
    mask_bits: float
    memcpy: Sample
    codings: tuple[Coding, ...]
    encode_shares: Mapping[str, float]
    decode_shares: Mapping[str, float]

    def coding(self, codec: str, *, threads: int = 1, kernels: str = "") -> Coding | None:
        """A codec's figures; None if it was not measured or did not run."""
        rows = [row for row in self.codings if (row.codec, row.threads, row.kernels) == (codec, threads, kernels)]
        return rows[0] if rows and not rows[0].missing else None


@dataclass(frozen=True)
class Whole:
    """A command on generated checkpoints, and the work in it that nothing can avoid.

    Attributes:
        command: ``apply`` or ``extract``.
        sample: of the installed command, its start included.
        parts: each of the parts that the bar adds up, on the same bytes, on one thread with buffers used again.
        besides: other work of the command that was measured alone.
    """

    command: str
    sample: Sample
    parts: Mapping[str, Sample]
    besides: Mapping[str, Sample]


@dataclass(frozen=True)
class Size:
    """Commands on generated checkpoints of one size.

    Attributes:
        gigabytes: requested, in 10^9 bytes.
        bytes: of the weight files of one checkpoint.
        params: of one checkpoint.
        density: coordinates that moved / coordinates.
        artifact_bytes: everything stored.
        delta_bytes: of the delta alone.
        wholes: ``apply`` and ``extract``.
        loop: reading, hashing twice (xxh3-128), writing and syncing the bytes of one checkpoint.
        copy: ``cp`` of a checkpoint, and fsync of its files.
    """

    gigabytes: float
    bytes: int
    params: int
    density: float
    artifact_bytes: int
    delta_bytes: int
    wholes: tuple[Whole, ...]
    loop: Sample
    copy: Sample

    def whole(self, command: str) -> Whole:
        """A command by its name."""
        (whole,) = [whole for whole in self.wholes if whole.command == command]
        return whole


@dataclass(frozen=True)
class Threads:
    """The same work on one thread and on two.

    Attributes:
        work: what it is.
        single, double: samples.
    """

    work: str
    single: Sample
    double: Sample

    @property
    def gain(self) -> float:
        """Seconds on one thread / seconds on two, of the best repetitions."""
        return self.single.least_wall / self.double.least_wall

    @property
    def middle(self) -> float:
        """The same of the medians."""
        return self.single.middle_wall / self.double.middle_wall


@dataclass(frozen=True)
class Start:
    """A command with almost nothing to do.

    Attributes:
        command: its name.
        first: in a home without caches, another one in every repetition.
        second: the next run in the same home.
    """

    command: str
    first: Sample
    second: Sample


@dataclass(frozen=True)
class Step:
    """An optimizer step on fp32 weights.

    Attributes:
        density: of the mask.
        threads: of PyTorch and maskreg.
        params: of the model.
        masked, fused, foreach: maskreg's, and PyTorch's two, on all coordinates.
        shares: CPU seconds of each compiled kernel in a masked step, and of the rest; empty with several threads.
    """

    density: float
    threads: int
    params: int
    masked: Sample
    fused: Sample
    foreach: Sample
    shares: Mapping[str, float]

    @property
    def of_fused(self) -> tuple[float, float]:
        """Time of a masked step / that of a fused one: of the best repetitions, and of the medians."""
        masked, fused = self.seconds(self.masked), self.seconds(self.fused)
        return masked[0] / fused[0], masked[1] / fused[1]

    def seconds(self, sample: Sample) -> tuple[float, float]:
        """The best repetition, and the median: CPU time on one thread, else wall time, since waiting threads spin."""
        if self.threads == 1:
            return sample.least, sample.middle
        return sample.least_wall, sample.middle_wall


@dataclass(frozen=True)
class Installed:
    """A fresh environment with maskreg, without extras.

    Attributes:
        bytes: of all files in it.
        packages: the same of each package.
        runs: of a small apply, the first ever in it first.
        missing: why it could not be made, in which case the rest is empty.
    """

    bytes: int
    packages: Mapping[str, int]
    runs: Sample
    missing: str = ""


@dataclass(frozen=True)
class Conditions:
    """What the figures depend on.

    Attributes:
        machine: processor, cores, kernel level, memory, disk.
        software: versions.
        commit: of the repository; empty where git does not know.
        dirty: tracked files differed from the commit.
        began: UTC time, ISO 8601.
        seconds: of the whole run.
        load_before, load_after: load average of one minute.
        cores_of_others: used on average during the run by processes that did not belong to it; None where unknown.
        quick: a run on tiny data, to see that everything works.
    """

    machine: Mapping[str, str]
    software: Mapping[str, str]
    commit: str
    dirty: bool
    began: str
    seconds: float
    load_before: float
    load_after: float
    cores_of_others: float | None
    quick: bool

    @property
    def busy(self) -> bool:
        """Whether other work may have slowed this down."""
        if self.cores_of_others is None:
            return self.load_before > BUSY_LOAD
        return self.cores_of_others > BUSY_CORES


@dataclass(frozen=True)
class Run:
    """Everything; parts that were not measured are empty."""

    schema: int
    conditions: Conditions
    default_codec: str
    pairs: tuple[Pair, ...] = ()
    sizes: tuple[Size, ...] = ()
    threads: tuple[Threads, ...] = ()
    interpreter: Sample | None = None
    starts: tuple[Start, ...] = ()
    steps: tuple[Step, ...] = ()
    installed: Installed | None = None


def dump(run: Run, path: Path) -> None:
    """Write JSON."""
    path.write_text(json.dumps(asdict(run), indent=1) + "\n")


def rounded(run: Run) -> Run:
    """The same with six significant digits, which is more than clocks are good for."""
    return parsed(Run, _rounded(asdict(run)))


def load(path: Path) -> Run:
    """Read what :func:`dump` wrote.

    Raises:
        NotFoundError: there is no such file.
        FormatError: it is something else, or of another schema.
    """
    again = "scripts/bench/run bars --json FILE"
    try:
        data = json.loads(path.read_text())
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise NotFoundError(f"{path}: no such file", hint=again) from None
    except ValueError as error:
        raise FormatError(f"{path} is not JSON: {error}", hint=again) from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        raise FormatError(f"{path}: schema {schema}, not {SCHEMA}", hint=again)
    try:
        return parsed(Run, data)
    except (KeyError, TypeError) as error:
        raise FormatError(f"{path} is not what `bars` wrote: {type(error).__name__} {error}", hint=again) from None


def parsed(kind: type[KindT], data: Any) -> KindT:
    """A value of a type of this module from plain data."""
    return typing.cast("KindT", _parsed(kind, data))


def _parsed(kind: Any, data: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if data is None else _parsed(arguments[0], data)
    if origin is tuple:
        return tuple(_parsed(arguments[0], entry) for entry in data)
    if origin is Mapping:
        return {key: _parsed(arguments[1], entry) for key, entry in data.items()}
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{field.name: _parsed(hints[field.name], data[field.name]) for field in fields(kind)})  # type: ignore[operator]
    return data


def _rounded(data: Any) -> Any:
    if isinstance(data, float):
        return float(f"{data:.6g}")
    if isinstance(data, dict):
        return {key: _rounded(entry) for key, entry in data.items()}
    return [_rounded(entry) for entry in data] if isinstance(data, list | tuple) else data
