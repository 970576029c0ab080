"""Counting the overlap of two generated masks: in memory beside memcpy, and of artifacts on disk, with their source.

Every measurement runs in a process of its own, so that peak memory is its own.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scripts.bench import process_memory
from scripts.bench.commands import MASKREG
from scripts.bench.folders import work_folder
from scripts.bench.masks import BLOCK, REGISTRY, SOURCE, generate
from scripts.bench.processes import environment

DENSITIES = 0.3, 0.2
REPEAT = 5
RUNS = 3


@dataclass(frozen=True)
class Run:
    """What ``maskreg compare`` takes with the source: the least of several runs, of all programs in turns.

    Attributes:
        program: the installed command.
        cpu_seconds: user and system, of all threads.
        peak_rss: peak resident set, in bytes.
    """

    program: str
    cpu_seconds: float
    peak_rss: int


@dataclass(frozen=True)
class Result:
    """The figures of one size.

    Attributes:
        coordinates: of each mask.
        bytes: of both masks.
        memcpy_gb_per_s: copying both masks, in 10^9 bytes a second.
        count_gb_per_s: counting both masks and their overlap in memory, in one thread.
        of_memcpy: ``count_gb_per_s`` / ``memcpy_gb_per_s``.
        classes_ns: nanoseconds for each coordinate when counted by the source's codes, in one thread.
        compare_seconds: opening, hashing, decoding and comparing both artifacts, in all threads.
        compare_gb_per_s: bytes of both masks / ``compare_seconds``.
        peak_rss: peak resident set of that, in bytes.
        with_source: the command and those beside it, with the source.
        parts: CPU seconds of its parts in one thread, with the source.
    """

    coordinates: int
    bytes: int
    memcpy_gb_per_s: float
    count_gb_per_s: float
    of_memcpy: float
    classes_ns: float
    compare_seconds: float
    compare_gb_per_s: float
    peak_rss: int
    with_source: tuple[Run, ...]
    parts: dict[str, float]


def bench(coordinates: int, parent: Path | None, beside: Sequence[Path] = ()) -> Result:
    """Generate two masks of that many coordinates, and their source, and compare them.

    Args:
        coordinates: of each mask.
        parent: where to work; the system's place for temporary files by default.
        beside: other installed ``maskreg`` programs, to run on the same files.
    """
    with work_folder(parent) as folder:
        digests = _isolated(generate, folder, coordinates, DENSITIES)
        speed = _isolated(_in_memory, coordinates)
        _isolated(_as_artifacts, folder, digests)  # fills the page cache
        seconds, peak = _isolated(_as_artifacts, folder, digests)
        parts = _isolated(_parts, folder, digests)
        runs = _with_source(folder, digests, [MASKREG, *beside])
    return Result(
        coordinates,
        compare_seconds=seconds,
        compare_gb_per_s=speed["bytes"] / seconds / 1e9,
        peak_rss=peak,
        with_source=runs,
        parts=parts,
        **speed,
    )


def table(result: Result) -> str:
    """The figures as text."""
    return (
        f"compare: two masks of {result.coordinates:,} coordinates\n"
        f"  counted in memory at {result.count_gb_per_s:.1f} GB/s, {result.of_memcpy:.2f} of memcpy "
        f"({result.memcpy_gb_per_s:.1f} GB/s); by the source's codes {result.classes_ns:.2f} ns a coordinate\n"
        f"  two artifacts compared in {result.compare_seconds:.2f} s ({result.compare_gb_per_s:.2f} GB/s, every object "
        f"hashed), peak {result.peak_rss / 1e6:.0f} MB\n"
        + "".join(
            f"  with the source: {run.cpu_seconds:.2f} CPU s, peak {run.peak_rss / 1e6:.0f} MB ({run.program})\n"
            for run in result.with_source
        )
        + "  CPU s in one thread: "
        + ", ".join(f"{part} {seconds:.2f}" for part, seconds in result.parts.items())
    )


def _isolated(work: Callable[..., Any], *args: Any) -> Any:
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(work, args)


def _with_source(folder: Path, digests: Sequence[str], programs: Sequence[Path]) -> tuple[Run, ...]:
    home = folder / "home"
    home.mkdir()
    env = {**environment(home), "MASKREG_HOME": str(folder / REGISTRY)}
    usages: dict[Path, list[process_memory.Usage]] = {program: [] for program in programs}
    for _ in range(RUNS):
        for program, own in usages.items():
            command: list[str | Path] = [program.absolute(), "compare", *digests, "--source", folder / SOURCE, "--json"]
            with Path(os.devnull).open("wb") as nowhere:
                own.append(process_memory.usage(command, nowhere, home, env))
            if own[-1].code:
                raise SystemExit(f"{program} compare failed with exit code {own[-1].code}")
    return tuple(
        Run(str(program), min(usage.cpu for usage in own), min(usage.peak for usage in own))
        for program, own in usages.items()
    )


def _parts(folder: Path, digests: Sequence[str]) -> dict[str, float]:
    from maskreg.analysis.evidence import figures_of, sums_from_classes
    from maskreg.analysis.grid import Grid, count_grid, shape_of
    from maskreg.artifact.reader import Artifact
    from maskreg.artifact.scope import scope_of
    from maskreg.checkpoint import open_checkpoint
    from maskreg.digest import Digest
    from maskreg.mask.flips import fit_flips
    from maskreg.store.file import FileStore
    from maskreg.tensors.blocks import blocks_of
    from maskreg.update.verified import VerifiedSource

    artifacts = [Artifact.open(FileStore(folder / REGISTRY), Digest(digest)) for digest in digests]
    source = VerifiedSource(artifacts[0], open_checkpoint(folder / SOURCE))
    seconds: defaultdict[str, float] = defaultdict(float)

    def timed(part: str, work: Callable[..., Any], *args: Any) -> Any:
        start = time.process_time()
        result = work(*args)
        seconds[part] += time.process_time() - start
        return result

    for rows in scope_of(artifacts).rows:
        shape = shape_of(rows[0].source_shape or ())
        assert shape
        grid = Grid(shape)
        for start, stop in blocks_of(rows[0].numel):
            pairs = zip(artifacts, rows, strict=True)
            masks = [timed("masks", artifact.mask_bits, row, start, stop) for artifact, row in pairs]
            codes = timed("source", source.codes, rows[0].name, start, stop)
            timed("add", grid.add, timed("count", count_grid, *masks, codes, start, shape))
        flips_a, flips_b = (timed("statistics", fit_flips, grid.cells.sum(1), row.nnz) for row in rows)
        figures = partial(sums_from_classes, grid.cells, flips_a, flips_b, grid, has_lines=True)
        timed("statistics", figures_of, timed("statistics", figures))
    return dict(seconds)


def _in_memory(coordinates: int) -> dict[str, Any]:
    import numpy as np

    from maskreg.analysis.contingency import count_both, count_classes

    rng = np.random.default_rng(0)
    size = coordinates // 64 * 8
    left, right = (rng.integers(0, 256, size, np.uint8) for _ in range(2))
    out = np.empty_like(left)

    def copy() -> None:
        np.copyto(out, left)
        np.copyto(out, right)

    memcpy_s, count_s = _best(copy), _best(lambda: count_both(left, right))
    codes = (rng.normal(0, 0.02, BLOCK).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    spans = [np.resize(side, BLOCK // 8) for side in (left, right)]
    classes_s = _best(lambda: count_classes(spans[0], spans[1], codes))
    return {
        "bytes": 2 * size,
        "memcpy_gb_per_s": 2 * size / memcpy_s / 1e9,
        "count_gb_per_s": 2 * size / count_s / 1e9,
        "of_memcpy": memcpy_s / count_s,
        "classes_ns": classes_s / BLOCK * 1e9,
    }


def _as_artifacts(folder: Path, digests: list[str]) -> tuple[float, int]:
    from maskreg.artifact.reader import Artifact
    from maskreg.digest import Digest
    from maskreg.flow.overlap.measure import measure_overlap
    from maskreg.store.file import FileStore

    start = time.perf_counter()
    measure_overlap([Artifact.open(FileStore(folder / REGISTRY), Digest(digest)) for digest in digests])
    seconds = time.perf_counter() - start
    return seconds, process_memory.peak()


def _best(work: Callable[[], object]) -> float:
    work()
    seconds = []
    for _ in range(REPEAT):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
