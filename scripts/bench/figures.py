"""The figures of one run, as JSON keeps them: every repetition, sizes, and what they depend on.

The table of bars, the page and its pictures are computed from these alone, so that they cannot disagree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec

from maskreg.errors import FormatError, NotFoundError

BUSY_LOAD, BUSY_CORES = 0.5, 0.2
"""Load average, and cores that other processes use, above which a machine counts as busy."""


@dataclass(frozen=True)
class Sample:
    """Repetitions of the same work in their order: CPU seconds (user and system, all threads), and seconds."""

    cpu: tuple[float, ...]
    wall: tuple[float, ...]

    @property
    def least(self) -> float:
        """CPU seconds of the best repetition."""
        return min(self.cpu)

    @property
    def least_wall(self) -> float:
        """Seconds of the best repetition."""
        return min(self.wall)


def ratio(over: Sample, under: Sample, *, wall: bool = False) -> tuple[float, float]:
    """One work's time / another's: of the best repetitions, and of the medians."""
    times = [(sample.wall if wall else sample.cpu) for sample in (over, under)]
    return min(times[0]) / min(times[1]), median(times[0]) / median(times[1])


@dataclass(frozen=True)
class Limits:
    """Entropies in bits for each coordinate, given the source's exponent: which changed (mask), and how far (step)."""

    mask: float
    step: float


@dataclass(frozen=True)
class Coding:
    """A codec on a pair; ``kernels`` is empty for the best build, ``missing`` says why a peer did not run."""

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
    """A pair of checkpoints, copying one of them in memory, and every codec on it."""

    name: str
    origin: str
    params: int
    density: float
    limits: Limits
    mask_bits: float
    memcpy: Sample
    codings: tuple[Coding, ...]

    def coding(self, codec: str, *, threads: int = 1, kernels: str = "") -> Coding | None:
        """A codec's figures; None where it did not run."""
        rows = [row for row in self.codings if (row.codec, row.threads, row.kernels) == (codec, threads, kernels)]
        return rows[0] if rows and not rows[0].missing else None

    def bits(self, coding: Coding) -> float:
        """Bits for each coordinate."""
        return 8 * coding.bytes / self.params

    def rate(self, sample: Sample) -> float:
        """10^9 bytes of one checkpoint a CPU second."""
        return 2 * self.params / sample.least / 1e9


@dataclass(frozen=True)
class Whole:
    """An installed command on generated checkpoints, its start included; ``peak`` is its resident memory in bytes."""

    command: str
    sample: Sample
    peak: int = 0


@dataclass(frozen=True)
class Size:
    """Commands on generated checkpoints of one size; ``gigabytes`` was requested, ``bytes`` are of the weight files.

    ``loop`` reads, hashes twice (xxh3-128), writes and syncs a checkpoint's bytes; ``copy`` is ``cp`` and fsync.
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
    """The same work on one thread and on two."""

    work: str
    single: Sample
    double: Sample


@dataclass(frozen=True)
class Start:
    """A command with almost nothing to do: in a home without caches, and the next run in the same home."""

    command: str
    first: Sample
    second: Sample


@dataclass(frozen=True)
class Conditions:
    """What the figures depend on; ``cores_of_others`` is None where the system does not say."""

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
        """Whether other work might have slowed this down."""
        if self.cores_of_others is None:
            return self.load_before > BUSY_LOAD
        return self.cores_of_others > BUSY_CORES


@dataclass(frozen=True)
class Run:
    """Everything; parts that were not measured are empty."""

    schema: Literal[1]
    conditions: Conditions
    default_codec: str
    pairs: tuple[Pair, ...] = ()
    sizes: tuple[Size, ...] = ()
    threads: tuple[Threads, ...] = field(default=())
    interpreter: Sample | None = None
    starts: tuple[Start, ...] = ()


def dump(run: Run, path: Path) -> None:
    """Write JSON, with six significant digits, which is more than clocks are good for."""
    rounded = json.loads(json.dumps(asdict(run)), parse_float=lambda text: float(f"{float(text):.6g}"))
    path.write_text(json.dumps(rounded, indent=1) + "\n")


def load(path: Path) -> Run:
    """Read what :func:`dump` wrote."""
    again = "measure again: scripts/bench/run --json FILE"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Run)
    except OSError:
        raise NotFoundError(f"{path}: no such file", hint=again) from None
    except msgspec.MsgspecError as error:
        raise FormatError(f"{path}: {error}", hint=again) from None
