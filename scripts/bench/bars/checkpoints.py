"""The installed ``extract`` and ``apply`` on generated checkpoints, beside their parts, a bare loop and ``cp``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import maskreg
from maskreg.artifact.reader import Artifact
from maskreg.digest import Digest
from maskreg.flow.apply.on_disk import apply
from maskreg.flow.extract.extraction import extract
from maskreg.space import free_bytes
from maskreg.store.file import FileStore
from scripts.bench.bars.figures import Size, Threads, Whole
from scripts.bench.bars.parts import BESIDES, PARTS, Parts
from scripts.bench.bars.sampling import cores, take_turns, timed
from scripts.bench.commands import MASKREG, generate, measured, same, size_of
from scripts.bench.folders import check_space, work_folder
from scripts.bench.process_memory import LINUX
from scripts.bench.processes import Cost, environment, run

CORES = 2
"""That commands may use, so that figures of different machines compare."""

MEMORY = Path("/dev/shm")
"""Where Linux keeps files in memory; on other systems threads are compared on the disk."""


@dataclass(frozen=True)
class _Bench:
    """One size.

    Attributes:
        folder: to work in; holds ``source`` and ``target``.
        digest: of their artifact, in ``folder/home``.
    """

    folder: Path
    digest: str

    @property
    def source(self) -> Path:
        """The source checkpoint."""
        return self.folder / "source"

    @property
    def target(self) -> Path:
        """The target checkpoint."""
        return self.folder / "target"

    @property
    def artifact(self) -> Path:
        """The artifact's folder."""
        return self.folder / "home" / "artifacts" / "sha256" / self.digest.removeprefix("sha256:")

    def apply(self) -> Mapping[str, Cost]:
        """The command; its result is removed."""
        out = self.folder / "out"
        with cores(CORES):
            env = environment(self.folder) | {"MASKREG_HOME": str(self.folder / "home")}
            cost = run([MASKREG, "apply", "bench", "--source", self.source, "-o", out], self.folder, env)
        shutil.rmtree(out)
        return {"apply": cost}

    def extract(self) -> Mapping[str, Cost]:
        """The command, into a registry of its own, which is removed."""
        home = self.folder / "again"
        with cores(CORES):
            env = environment(self.folder) | {"MASKREG_HOME": str(home)}
            cost = run([MASKREG, "extract", self.source, self.target, "--name", "again"], self.folder, env)
        shutil.rmtree(home)
        return {"extract": cost}

    def copy(self) -> Mapping[str, Cost]:
        """``cp`` of the target, and fsync of the files."""
        out = self.folder / "copy"
        # Some file systems would share the blocks of both, which is no copy.
        never = ["--reflink=never"] if LINUX else []
        cost = run(["cp", "-r", *never, self.target, out], self.folder)
        synced = timed("fsync", lambda: _sync(out))()["fsync"]
        shutil.rmtree(out)
        return {"copy": Cost(cost.cpu + synced.cpu, cost.wall + synced.wall)}


def measure(gigabytes: float, parent: Path | None, rounds: int) -> Size:
    """Generate checkpoints of a size, and measure the commands and everything beside them in turn.

    Args:
        gigabytes: size of each checkpoint.
        parent: where to work.
        rounds: repetitions of each.

    Raises:
        SystemExit: the disk is too full, a command failed, or the result was not the target.
    """
    check_space(parent, gigabytes)
    with work_folder(parent) as folder:
        generate(folder, gigabytes)
        _, _, artifact = measured(folder, "extract", folder / "source", folder / "target", "--name", "bench")
        measured(folder, "apply", "bench", "--source", folder / "source", "-o", folder / "out")
        if not same(folder / "out", folder / "target"):
            raise SystemExit(f"the result at {gigabytes} GB is not the target")
        shutil.rmtree(folder / "out")
        os.sync()
        bench = _Bench(folder, artifact["digest"])
        parts = Parts(bench.source, bench.target, bench.artifact, folder / "scratch")

        def part_of(command: str) -> Mapping[str, Cost]:
            return {f"{command}: {name}": cost for name, cost in getattr(parts, command)().items()}

        samples = take_turns(
            [
                bench.extract,
                lambda: part_of("extract"),
                bench.apply,
                lambda: part_of("apply"),
                parts.loop,
                bench.copy,
            ],
            rounds,
        )
        wholes = [
            Whole(
                command,
                samples[command],
                {name: samples[f"{command}: {name}"] for name in PARTS[command]},
                {name: samples[f"{command}: {name}"] for name in BESIDES[command]},
            )
            for command in PARTS
        ]
        return Size(
            gigabytes=gigabytes,
            bytes=size_of(bench.target),
            params=artifact["manifest"]["target"]["params"],
            density=artifact["density"],
            artifact_bytes=artifact["size"],
            delta_bytes=artifact["manifest"]["parts"]["delta"]["size"],
            wholes=tuple(wholes),
            loop=samples["loop"],
            copy=samples["copy"],
        )


def threads(gigabytes: float, parent: Path | None, rounds: int) -> tuple[Threads, ...]:
    """Extracting and applying in this process with one thread and with two, on files in memory where there is room.

    Args:
        gigabytes: size of each checkpoint.
        parent: where to work without that.
        rounds: repetitions of each.
    """
    if MEMORY.is_dir() and free_bytes(MEMORY) > 5e9 * gigabytes:
        parent = MEMORY
    check_space(parent, gigabytes)
    with work_folder(parent) as folder:
        generate(folder, gigabytes)
        works = [partial(work, folder, jobs) for work in (_extracted, _applied) for jobs in (1, CORES)]
        # Applying reads what extracting has stored.
        samples = take_turns(works, rounds)
    return tuple(Threads(n, samples[f"{n}, 1"], samples[f"{n}, {CORES}"]) for n in PARTS)


def _extracted(folder: Path, jobs: int) -> Mapping[str, Cost]:
    shutil.rmtree(folder / "registry", ignore_errors=True)
    with (
        closing(maskreg.open_checkpoint(folder / "source")) as source,
        closing(maskreg.open_checkpoint(folder / "target")) as target,
    ):
        return timed(f"extract, {jobs}", lambda: extract(source, target, folder / "registry", jobs=jobs))()


def _applied(folder: Path, jobs: int) -> Mapping[str, Cost]:
    (path,) = (folder / "registry" / "artifacts" / "sha256").iterdir()
    # Opened anew: an open artifact remembers what it has hashed.
    artifact = Artifact.open(FileStore(folder / "registry"), Digest(f"sha256:{path.name}"))
    with closing(maskreg.open_checkpoint(folder / "source")) as source:
        costs = timed(f"apply, {jobs}", lambda: apply(artifact, source, folder / "out", jobs=jobs))()
    shutil.rmtree(folder / "out")
    return costs


def _sync(folder: Path) -> None:
    for path in folder.iterdir():
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
