"""Counting the overlap of two generated masks, in memory beside memcpy, and of artifacts on disk.

Every measurement runs in a process of its own, so that peak memory is its own.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.bench import process_memory
from scripts.bench.folders import work_folder

TENSOR_NUMEL = 1 << 25
BLOCK = 1 << 22
REPEAT = 5


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


def bench(coordinates: int, parent: Path | None) -> Result:
    """Generate two masks of that many coordinates and compare them."""
    with work_folder(parent) as folder:
        digests = _isolated(_generate, folder, coordinates)
        speed = _isolated(_in_memory, coordinates)
        _isolated(_as_artifacts, folder, digests)  # fills the page cache
        seconds, peak = _isolated(_as_artifacts, folder, digests)
    return Result(
        coordinates, compare_seconds=seconds, compare_gb_per_s=speed["bytes"] / seconds / 1e9, peak_rss=peak, **speed
    )


def table(result: Result) -> str:
    """The figures as text."""
    return (
        f"compare: two masks of {result.coordinates:,} coordinates\n"
        f"  counted in memory at {result.count_gb_per_s:.1f} GB/s, {result.of_memcpy:.2f} of memcpy "
        f"({result.memcpy_gb_per_s:.1f} GB/s); by the source's codes {result.classes_ns:.2f} ns a coordinate\n"
        f"  two artifacts compared in {result.compare_seconds:.2f} s ({result.compare_gb_per_s:.2f} GB/s, every object "
        f"hashed), peak {result.peak_rss / 1e6:.0f} MB"
    )


def _isolated(work: Callable[..., Any], *args: Any) -> Any:
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(work, args)


def _generate(folder: Path, coordinates: int) -> list[str]:
    import numpy as np

    from maskreg.artifact.manifest import Side
    from maskreg.artifact.writer import ArtifactWriter, BlockRecord, Provenance
    from maskreg.mask import packed_bytes
    from maskreg.tensors.info import TensorInfo

    digests = []
    side = Side(
        root="sha256:" + 64 * "0",
        params=coordinates,
        tensors=-(-coordinates // TENSOR_NUMEL),
        dtypes={"BF16": coordinates},
    )
    for seed in range(2):
        rng = np.random.default_rng(seed)
        with ArtifactWriter(folder, {"mask"}) as writer:
            for number, offset in enumerate(range(0, coordinates, TENSOR_NUMEL)):
                numel = min(TENSOR_NUMEL, coordinates - offset)
                name = f"model.layers.{number}.mlp.up_proj.weight"
                info = TensorInfo(name, "BF16", (numel,))
                writer.begin(name, role="ffn", layer=str(number), source=info, target=info)
                for start in range(0, numel, BLOCK):
                    n = min(BLOCK, numel - start)
                    bits = rng.integers(0, 256, packed_bytes(n), np.uint8)
                    # Padding bits behind the last coordinate must be 0.
                    bits[n // 8 :] = 0
                    nnz = int(np.bitwise_count(bits).sum(dtype=np.int64))
                    writer.add_block(BlockRecord(bits, numel=n, nnz=nnz, differing=nnz))
                leaves = np.zeros((-(-numel // (1 << 18)), 16), np.uint8)
                writer.add_leaves(leaves, leaves)
                writer.end()
            digests.append(writer.finish(Provenance(kind="mask", rule="exact", exact=False, source=side, target=side)))
    return [str(digest) for digest in digests]


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
    measure_overlap([Artifact.open(FileStore(folder), Digest(digest)) for digest in digests])
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
