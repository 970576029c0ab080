"""Speed of creating baselines of a mask: reads and checks the source, stores nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import maskreg
from maskreg.artifact.reader import Artifact
from maskreg.flow.baseline.build import Baseline
from maskreg.flow.extract.extraction import extract
from maskreg.mask.baseline import KINDS, BaselineSpec
from maskreg.store.file import FileStore
from scripts.bench import commands
from scripts.bench.folders import check_space, work_folder

EXCLUDED = ("principal", "safe")
"""Their cost is that of decomposing matrices, not of coordinates."""


@dataclass(frozen=True)
class Row:
    """One kind.

    Attributes:
        gigabytes: requested size of the source.
        kind: of the baseline.
        coordinates: of the mask.
        cpu_seconds: with one thread.
        coordinates_per_second: of CPU time.
    """

    gigabytes: float
    kind: str
    coordinates: int
    cpu_seconds: float
    coordinates_per_second: float


def run_all(sizes: Sequence[float], parent: Path | None, repeat: int) -> list[Row]:
    """Measure at every size, in temporary folders.

    Raises:
        SystemExit: the disk is too full.
    """
    check_space(parent, max(sizes))
    rows = []
    for gigabytes in sizes:
        with work_folder(parent) as folder:
            rows += _bench(folder, gigabytes, repeat)
    return rows


def _bench(folder: Path, gigabytes: float, repeat: int) -> list[Row]:
    commands.make_pair(folder / "source", folder / "target", gigabytes)
    with (
        closing(maskreg.open_checkpoint(folder / "source")) as source,
        closing(maskreg.open_checkpoint(folder / "target")) as target,
    ):
        extracted = extract(source, target, folder / "registry", mask_only=True)
        artifact = Artifact.open(FileStore(folder / "registry"), extracted.digest)
        totals = artifact.manifest.totals
        rows = []
        for kind in (name for name in KINDS if name not in EXCLUDED):
            spec = BaselineSpec.of(kind, density=totals.density / 2 if kind == "subset" else None)
            seconds = []
            # The first repetition fills the page cache.
            for _ in range(repeat + 1):
                start = time.process_time()
                for _ in Baseline(artifact, spec, source, jobs=1).blocks():
                    pass
                seconds.append(time.process_time() - start)
            best = min(seconds[1:])
            rows.append(Row(gigabytes, kind, totals.numel, best, totals.numel / best))
    return rows


def table(rows: Sequence[Row]) -> str:
    """The rows as text."""
    lines = [f"{'GB':>6}  {'baseline':<18}{'CPU s':>8}{'M coordinates/s a core':>26}"]
    lines += [
        f"{row.gigabytes:>6g}  {row.kind:<18}{row.cpu_seconds:>8.2f}{row.coordinates_per_second / 1e6:>26.0f}"
        for row in rows
    ]
    return "\n".join(lines)
