"""How fast baselines of a mask are worked out, source reading and checking included, nothing stored."""

from __future__ import annotations

import tempfile
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

KINDS_LEFT_OUT = ("principal", "safe")
"""What these take is up to the decomposition of matrices, not to the coordinates."""


@dataclass(frozen=True)
class Row:
    """One kind.

    Attributes:
        gigabytes: size of the source, as asked for.
        kind: of the baseline.
        coordinates: of the mask.
        cpu_seconds: with one thread.
        coordinates_per_second: of that.
    """

    gigabytes: float
    kind: str
    coordinates: int
    cpu_seconds: float
    coordinates_per_second: float


def run_all(sizes: Sequence[float], where: Path | None, repeat: int) -> list[Row]:
    """Measure at every size, in a folder that is gone afterwards.

    Raises:
        SystemExit: the disk has no room.
    """
    commands.check_space(where or Path(tempfile.gettempdir()), max(sizes))
    if where:
        where.mkdir(parents=True, exist_ok=True)
    rows = []
    for gigabytes in sizes:
        with tempfile.TemporaryDirectory(prefix="maskreg-bench-", dir=where) as folder:
            rows += _bench(Path(folder), gigabytes, repeat)
    return rows


def _bench(folder: Path, gigabytes: float, repeat: int) -> list[Row]:
    commands.make_pair(folder / "source", folder / "target", gigabytes)
    with (
        closing(maskreg.open_checkpoint(folder / "source")) as source,
        closing(maskreg.open_checkpoint(folder / "target")) as target,
    ):
        made = extract(source, target, folder / "registry", mask_only=True)
        artifact = Artifact.open(FileStore(folder / "registry"), made.digest)
        totals = artifact.manifest.totals
        rows = []
        for kind in (name for name in KINDS if name not in KINDS_LEFT_OUT):
            spec = BaselineSpec.of(kind, density=totals.density / 2 if kind == "subset" else None)
            seconds = []
            # The first time compiles, and brings the files into memory.
            for _ in range(repeat + 1):
                start = time.process_time()
                for _ in Baseline(artifact, spec, source, jobs=1).blocks():
                    pass
                seconds.append(time.process_time() - start)
            best = min(seconds[1:])
            rows.append(Row(gigabytes, kind, totals.numel, best, totals.numel / best))
    return rows


def table(rows: Sequence[Row]) -> str:
    """The rows for people."""
    lines = [f"{'GB':>6}  {'baseline':<18}{'CPU s':>8}{'M coordinates/s a core':>26}"]
    lines += [
        f"{row.gigabytes:>6g}  {row.kind:<18}{row.cpu_seconds:>8.2f}{row.coordinates_per_second / 1e6:>26.0f}"
        for row in rows
    ]
    return "\n".join(lines)
