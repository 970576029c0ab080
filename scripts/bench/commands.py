"""The installed ``extract`` and ``apply`` beside a bare loop and ``cp``, and commands with almost nothing to do.

Peak memory should not grow with the checkpoint. If memory allows, all files are in the page cache.
"""

from __future__ import annotations

import filecmp
import json
import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import maskreg
from maskreg.digest import Digest
from maskreg.disk import free_bytes
from scripts.bench.figures import Sample, Size, Start, Threads, Whole
from scripts.bench.pairs import to_bf16, widened
from scripts.bench.timing import MASKREG, Cost, cores, environment, run, take_turns, timed, work_folder

SHARDS = 16

WEIGHT_STD, UPDATE_STD = 0.02, 5.15e-5
"""Of normal weights and their normal update: 48 % of the coordinates move, as in on-policy distillation."""

WIDTH = 2048
"""Columns of every tensor."""

BLOCK = 1 << 22
"""Elements generated at a time; most tensors have as many."""

CORES = 2
"""That commands can use, so that figures of different machines compare."""

MEMORY = Path("/dev/shm")
"""Where Linux keeps files in memory; on other systems threads are compared on the disk."""

START_GIGABYTES = 0.002
"""Size of the checkpoints of commands with almost nothing to do."""

Line = tuple[str | Path, ...]

STARTS: dict[str, Callable[[Path, int], Line]] = {
    "--help": lambda pair, run: ("--help",),
    "list": lambda pair, run: ("list",),
    "list --remote": lambda pair, run: ("list", "--remote", "team"),
    "show": lambda pair, run: ("show", "opd"),
    "tag": lambda pair, run: ("tag", "opd", f"best{run}"),
    "pull": lambda pair, run: ("pull", "opd"),
    "verify": lambda pair, run: ("verify", "opd"),
    "apply": lambda pair, run: ("apply", "opd", "--source", pair / "source", "-o", f"out{run}"),
    "compare": lambda pair, run: ("compare", "opd", "random"),
    "extract": lambda pair, run: ("extract", pair / "source", pair / "target", "--name", f"again{run}"),
    "doctor": lambda pair, run: ("doctor",),
}
"""What is typed for each command, by the folder of the checkpoints and the number of the run."""


def make_models(source: Path, targets: Sequence[Path], gigabytes: float) -> None:
    """Write a sharded bf16 source and several targets of it; the first shard is a single tensor, like an embedding."""
    rng = np.random.default_rng(0)
    weight_map: dict[str, str] = {}
    folders = (source, *targets)
    for folder in folders:
        folder.mkdir()
    for number, shapes in enumerate(shards(gigabytes), start=1):
        file_name = f"model-{number:05}-of-{SHARDS:05}.safetensors"
        weight_map |= dict.fromkeys(shapes, file_name)
        with ExitStack() as opened:
            before, *after = (opened.enter_context((folder / file_name).open("wb")) for folder in folders)
            for file in (before, *after):
                file.write(header(shapes))
            for rows in shapes.values():
                for start in range(0, rows * WIDTH, BLOCK):
                    n = min(BLOCK, rows * WIDTH - start)
                    codes = to_bf16(np.float32(WEIGHT_STD) * rng.standard_normal(n, np.float32))
                    before.write(codes.data)
                    for file in after:
                        update = np.float32(UPDATE_STD) * rng.standard_normal(n, np.float32)
                        file.write(to_bf16(widened(codes) + update).data)
    index = {"metadata": {"total_size": size_of(source, header_too=False)}, "weight_map": weight_map}
    for folder in folders:
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')


def shards(gigabytes: float) -> Iterator[dict[str, int]]:
    """Tensors of each shard and their rows."""
    rows, most = max(1, int(gigabytes * 1e9 / 2 / SHARDS / WIDTH)), BLOCK // WIDTH
    yield {"model.embed_tokens.weight": rows}
    names = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "self_attn.q_proj")
    layers = -(-rows // most // len(names)) or 1
    for shard in range(SHARDS - 1):
        yield {
            f"model.layers.{shard * layers + i // 4}.{names[i % 4]}.weight": min(most, rows - start)
            for i, start in enumerate(range(0, rows, most))
        }


def header(shapes: dict[str, int]) -> bytes:
    """The safetensors header of bf16 matrices, by their rows."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, rows in shapes.items():
        ends = [offset, offset := offset + 2 * rows * WIDTH]
        entries[name] = {"dtype": "BF16", "shape": [rows, WIDTH], "data_offsets": ends}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def size_of(folder: Path, *, header_too: bool = True) -> int:
    """Bytes of the weight files."""
    total = 0
    for path in folder.glob("*.safetensors"):
        total += path.stat().st_size
        if not header_too:
            with path.open("rb") as file:
                total -= 8 + int.from_bytes(file.read(8), "little")
    return total


def same(left: Path, right: Path) -> bool:
    """Whether two folders hold the same files with the same bytes."""
    names = sorted(path.name for path in left.iterdir())
    if names != sorted(path.name for path in right.iterdir()):
        return False
    return filecmp.cmpfiles(left, right, names, shallow=False)[0] == names


def generate(folder: Path, gigabytes: float) -> None:
    """Write ``folder/source`` and ``folder/target`` in a process of its own, whose memory is not this one's."""
    args = (folder / "source", [folder / "target"], gigabytes)
    generator = multiprocessing.get_context("spawn").Process(target=make_models, args=args)
    generator.start()
    generator.join()
    if generator.exitcode:
        raise SystemExit("the checkpoints could not be generated")


def measure(gigabytes: float, parent: Path | None, rounds: int) -> Size:
    """Generate checkpoints of a size, and measure the commands and what stands beside them in turn."""
    with work_folder(parent, gigabytes) as folder, cores(CORES):
        generate(folder, gigabytes)
        source, target, out = folder / "source", folder / "target", folder / "out"
        peaks: dict[str, int] = {}
        said = ""

        def command(name: str, *args: str | Path, removed: Path) -> Mapping[str, Cost]:
            nonlocal said
            shutil.rmtree(removed, ignore_errors=True)
            cost, said = run([MASKREG, name, *args, "--json"], folder, environment(folder))
            peaks[name] = max(cost.peak, peaks.get(name, 0))
            return {name: cost}

        extract = partial(command, "extract", source, target, "--name", "bench", removed=folder / "registry")
        apply = partial(command, "apply", "bench", "--source", source, "-o", out, removed=out)
        extract()
        artifact = json.loads(said)
        apply()
        if not same(out, target):
            raise SystemExit(f"the result at {gigabytes} GB is not the target")
        os.sync()
        scratch = folder / "scratch"
        samples = take_turns(
            [extract, apply, timed("loop", lambda: _loop(source, scratch)), lambda: _copy(target, folder / "copy")],
            rounds,
        )
        return Size(
            gigabytes=gigabytes,
            bytes=size_of(target),
            params=artifact["manifest"]["target"]["params"],
            density=artifact["density"],
            artifact_bytes=artifact["size"],
            delta_bytes=artifact["manifest"]["parts"]["delta"]["size"],
            wholes=tuple(Whole(name, samples[name], peaks[name]) for name in ("extract", "apply")),
            loop=samples["loop"],
            copy=samples["copy"],
        )


def _loop(source: Path, scratch: Path) -> None:
    """Reading a checkpoint, hashing it twice, writing and syncing it, and nothing else."""
    import xxhash

    piece = memoryview(bytearray(1 << 23))
    scratch.unlink(missing_ok=True)  # a new file, as the commands write it
    with scratch.open("wb", buffering=0) as out:
        for path in sorted(source.glob("*.safetensors")):
            with path.open("rb", buffering=0) as file:
                while size := file.readinto(piece):
                    for _ in range(2):
                        xxhash.xxh3_128_digest(piece[:size])
                    out.write(piece[:size])
        os.fsync(out.fileno())


def _copy(folder: Path, to: Path) -> Mapping[str, Cost]:
    """``cp`` of a folder, and fsync of the files."""
    shutil.rmtree(to, ignore_errors=True)
    # Some file systems would share the blocks of both, which is no copy.
    never = ["--reflink=never"] if sys.platform == "linux" else []
    cost, _ = run([shutil.which("cp") or "cp", "-r", *never, folder, to], folder.parent)

    def sync() -> None:
        for path in to.iterdir():
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)

    synced = timed("fsync", sync)()["fsync"]
    return {"copy": Cost(cost.cpu + synced.cpu, cost.wall + synced.wall)}


def threads(gigabytes: float, parent: Path | None, rounds: int) -> tuple[Threads, ...]:
    """Extracting and applying in this process with one thread and with two, on files in memory where there is room."""
    if MEMORY.is_dir() and free_bytes(MEMORY) > 5e9 * gigabytes:
        parent = MEMORY
    with work_folder(parent, gigabytes) as folder:
        generate(folder, gigabytes)
        # Applying reads what extracting has stored.
        works = [partial(work, folder, jobs) for work in (_extracted, _applied) for jobs in (1, CORES)]
        samples = take_turns(works, rounds)
    return tuple(Threads(name, samples[f"{name}, 1"], samples[f"{name}, {CORES}"]) for name in ("extract", "apply"))


def _extracted(folder: Path, jobs: int) -> Mapping[str, Cost]:
    from maskreg.flow.extract.extraction import extract

    shutil.rmtree(folder / "registry", ignore_errors=True)
    with (
        closing(maskreg.open_checkpoint(folder / "source")) as source,
        closing(maskreg.open_checkpoint(folder / "target")) as target,
    ):
        return timed(f"extract, {jobs}", lambda: extract(source, target, folder / "registry", jobs=jobs))()


def _applied(folder: Path, jobs: int) -> Mapping[str, Cost]:
    from maskreg.artifact.reader import Artifact
    from maskreg.flow.apply.on_disk import apply
    from maskreg.store.file import FileStore

    (path,) = (folder / "registry" / "artifacts" / "sha256").iterdir()
    # Opened anew: an open artifact remembers what it has hashed.
    artifact = Artifact.open(FileStore(folder / "registry"), Digest(f"sha256:{path.name}"))
    with closing(maskreg.open_checkpoint(folder / "source")) as source:
        costs = timed(f"apply, {jobs}", lambda: apply(artifact, source, folder / "out", jobs=jobs))()
    shutil.rmtree(folder / "out")
    return costs


def starts(commands: Sequence[str], parent: Path | None, rounds: int) -> tuple[Sample, tuple[Start, ...]]:
    """An interpreter that does nothing, and each command twice in a fresh copy of a home, in turn."""
    with work_folder(parent) as folder:
        make_models(folder / "source", [folder / "target"], START_GIGABYTES)
        home = folder / "home"
        (home / "team").mkdir(parents=True)
        for line in (
            ("extract", folder / "source", folder / "target", "--name", "opd", "--method", "opd"),
            ("baseline", "opd", "--kind", "random-global", "--seed", "0", "--name", "random"),
            ("remote", "add", "team", "team"),
            ("push", "opd"),
        ):
            run([MASKREG, *line], home, environment(home))

        def both(name: str) -> Mapping[str, Cost]:
            fresh = folder / "fresh"
            shutil.copytree(home, fresh, symlinks=True)
            first, second = (
                run([MASKREG, *STARTS[name](folder, number)], fresh, environment(fresh))[0] for number in range(2)
            )
            shutil.rmtree(fresh)
            return {f"{name}, first": first, f"{name}, second": second}

        def python() -> Mapping[str, Cost]:
            return {"python": run([sys.executable, "-I", "-c", "pass"], folder)[0]}

        samples = take_turns([python, *(partial(both, name) for name in commands)], rounds)
    return samples["python"], tuple(
        Start(name, samples[f"{name}, first"], samples[f"{name}, second"]) for name in commands
    )
