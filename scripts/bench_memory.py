"""Peak memory and speed of the installed ``maskreg extract`` and ``maskreg apply``, by size of checkpoint.

Peak memory should not grow with the size. Speed is bytes of one checkpoint a second, beside a plain copy (copyfile and
fsync) of the same checkpoint in the same run; its files are in the page cache for all three when memory allows.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from maskreg.disk import free_bytes

MASKREG = Path(sys.executable).with_name("maskreg")

SHARDS = 16

MOVED = 0.48
"""Coordinates that move: about what on-policy distillation does to a bf16 model."""

BLOCK = 1 << 22
"""Elements made at a time, and those of most tensors."""


@dataclass(frozen=True)
class Cost:
    """What one command took.

    Attributes:
        seconds: from start to end.
        gb_per_s: bytes of one checkpoint (10^9) a second.
        of_copy: the same as a multiple of the plain copy's.
        peak_rss: largest resident set, in bytes.
    """

    seconds: float
    gb_per_s: float
    of_copy: float
    peak_rss: int


@dataclass(frozen=True)
class Run:
    """Everything about one size.

    Attributes:
        gigabytes: size that was asked for, in 10^9 bytes.
        bytes: size of the weight files of one checkpoint.
        params: elements of one checkpoint.
        density: coordinates that moved / coordinates.
        artifact_bytes: everything that was stored.
        bits_per_param: ``artifact_bytes`` in bits / ``params``.
        copy_seconds: of the plain copy.
        copy_gb_per_s: of the plain copy.
        extract: source and target to an artifact.
        apply: source and artifact to the target, which was compared with the original file by file.
    """

    gigabytes: float
    bytes: int
    params: int
    density: float
    artifact_bytes: int
    bits_per_param: float
    copy_seconds: float
    copy_gb_per_s: float
    extract: Cost
    apply: Cost


def make_pair(source: Path, target: Path, gigabytes: float) -> None:
    """Write a sharded bf16 source and its target; the first shard is one tensor, as an embedding is."""
    import numpy as np

    rng = np.random.default_rng(0)
    limit = np.uint16(MOVED * (1 << 16))
    weight_map: dict[str, str] = {}
    for folder in (source, target):
        folder.mkdir()
    for number, shapes in enumerate(shards(gigabytes), start=1):
        file_name = f"model-{number:05}-of-{SHARDS:05}.safetensors"
        weight_map |= dict.fromkeys(shapes, file_name)
        with (source / file_name).open("wb") as before, (target / file_name).open("wb") as after:
            for file in (before, after):
                file.write(header(shapes))
            for numel in shapes.values():
                for start in range(0, numel, BLOCK):
                    n = min(BLOCK, numel - start)
                    values = rng.standard_normal(n, np.float32) * np.float32(0.02)
                    codes = (values.view(np.uint32) >> 16).astype(np.uint16)
                    chance = rng.integers(0, 1 << 16, n, np.uint16)
                    # One step up or down; 1 and 65535 are the two steps modulo 2^16.
                    steps = np.where(chance & 1, np.uint16(1), np.uint16(0xFFFF))
                    before.write(codes.data)
                    after.write(np.where(chance < limit, codes + steps, codes).data)
    index = {"metadata": {"total_size": size_of(source, header_too=False)}, "weight_map": weight_map}
    for folder in (source, target):
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')


def shards(gigabytes: float) -> Iterator[dict[str, int]]:
    """Tensors of each shard and their elements."""
    numel = max(1, int(gigabytes * 1e9 / 2 / SHARDS))
    yield {"model.embed_tokens.weight": numel}
    names = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "self_attn.q_proj")
    for layer in range(SHARDS - 1):
        starts = range(0, numel, BLOCK)
        yield {
            f"model.layers.{layer * 100 + i // 4}.{names[i % 4]}.weight": min(BLOCK, numel - start)
            for i, start in enumerate(starts)
        }


def header(shapes: dict[str, int]) -> bytes:
    """The safetensors header of 1-D bf16 tensors."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, numel in shapes.items():
        entries[name] = {"dtype": "BF16", "shape": [numel], "data_offsets": [place, place := place + 2 * numel]}
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


def copy(folder: Path, to: Path) -> float:
    """Copy a folder's files to disk, and how many seconds it took."""
    to.mkdir()
    begun = time.perf_counter()
    for path in sorted(folder.iterdir()):
        shutil.copyfile(path, to / path.name)
        with (to / path.name).open("rb+") as file:
            os.fsync(file.fileno())
    return time.perf_counter() - begun


def measured(folder: Path, *args: str | Path) -> tuple[float, int, Any]:
    """Run maskreg: seconds, largest resident set in bytes, and what it wrote with ``--json``."""
    own = {"HOME": "", "MASKREG_HOME": "home", "MASKREG_CONFIG": "config.toml"}
    env = {**os.environ, **{name: str(folder / place) for name, place in own.items()}}
    said = folder / "said.json"
    begun = time.perf_counter()
    with said.open("wb") as out:
        process = subprocess.Popen([MASKREG, *args, "--json"], stdout=out, cwd=folder, env=env)
        # Not Popen.wait: only wait4 tells what this child used, apart from all others.
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"maskreg {args[0]} ended with {process.returncode}: {said.read_text()}")
    # Linux counts kibibytes, macOS bytes.
    return seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024), json.loads(said.read_text())


def same(one: Path, other: Path) -> bool:
    """Whether two folders hold the same files with the same bytes."""
    names = sorted(path.name for path in one.iterdir())
    if names != sorted(path.name for path in other.iterdir()):
        return False
    return filecmp.cmpfiles(one, other, names, shallow=False)[0] == names


def bench(folder: Path, gigabytes: float) -> Run:
    """Generate, extract, apply and compare at one size; ``folder`` is empty and stays full."""
    source, target, out = folder / "source", folder / "target", folder / "out"
    # A process of its own: on Linux a child's peak begins at that of the process that started it.
    maker = multiprocessing.get_context("spawn").Process(target=make_pair, args=(source, target, gigabytes))
    maker.start()
    maker.join()
    if maker.exitcode:
        raise SystemExit("the checkpoints could not be made")
    size = size_of(target)
    copy_s = copy(target, folder / "copy")
    shutil.rmtree(folder / "copy")

    def cost(seconds: float, peak: int) -> Cost:
        return Cost(seconds, size / seconds / 1e9, copy_s / seconds, peak)

    extract_s, extract_rss, artifact = measured(folder, "extract", source, target, "--name", "bench")
    apply_s, apply_rss, _ = measured(folder, "apply", "bench", "--source", source, "-o", out)
    if not same(out, target):
        raise SystemExit(f"the result at {gigabytes} GB is not the target")
    params = artifact["manifest"]["target"]["params"]
    return Run(
        gigabytes=gigabytes,
        bytes=size,
        params=params,
        density=artifact["density"],
        artifact_bytes=artifact["size"],
        bits_per_param=8 * artifact["size"] / params,
        copy_seconds=copy_s,
        copy_gb_per_s=size / copy_s / 1e9,
        extract=cost(extract_s, extract_rss),
        apply=cost(apply_s, apply_rss),
    )


def check_space(folder: Path, gigabytes: float) -> None:
    """Refuse to begin what the disk cannot hold: source, target, result, and an artifact that may be as large."""
    needed, free = int(gigabytes * 4e9) + (256 << 20), free_bytes(folder)
    if free < needed:
        raise SystemExit(f"{folder} has {free / 1e9:.1f} GB free and {needed / 1e9:.1f} GB are needed; use --dir")


def table(runs: Sequence[Run]) -> str:
    """The runs for people."""
    lines = [f"{'GB':>6}  {'command':<8}{'peak RSS':>10}{'seconds':>9}{'GB/s':>7}{'of copy':>9}{'bits/param':>12}"]
    for run in runs:
        lines.append(f"{run.gigabytes:>6g}  {'copy':<8}{'':>10}{run.copy_seconds:>9.2f}{run.copy_gb_per_s:>7.2f}")
        for name, cost in (("extract", run.extract), ("apply", run.apply)):
            bits = f"{run.bits_per_param:>12.2f}" if name == "extract" else ""
            lines.append(
                f"{run.gigabytes:>6g}  {name:<8}{cost.peak_rss / 1e6:>7.0f} MB{cost.seconds:>9.2f}"
                f"{cost.gb_per_s:>7.2f}{cost.of_copy:>9.2f}{bits}"
            )
    return "\n".join(lines)


def main() -> None:
    """Run every size and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[1.0, 2.0, 4.0], help="sizes of a checkpoint")
    parser.add_argument("--dir", type=Path, help="where to work; a temporary folder when left out")
    parser.add_argument("--json", action="store_true", help="write the runs as JSON")
    options = parser.parse_args()
    check_space(options.dir or Path(tempfile.gettempdir()), max(options.gigabytes))
    if options.dir:
        options.dir.mkdir(parents=True, exist_ok=True)
    runs = []
    for gigabytes in options.gigabytes:
        with tempfile.TemporaryDirectory(prefix="maskreg-bench-", dir=options.dir) as folder:
            runs.append(bench(Path(folder), gigabytes))
    print(json.dumps({"runs": [asdict(run) for run in runs]}) if options.json else table(runs))


if __name__ == "__main__":
    main()
