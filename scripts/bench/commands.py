"""Peak memory, speed and stored size of the installed ``maskreg extract`` and ``maskreg apply``.

Peak memory should not grow with the checkpoint. Speed is bytes of one checkpoint a second, beside ``cp`` and
``sha256sum`` of the same files in the same run. If memory allows, all files are in the page cache. The plain copy
(copyfile and fsync) ends on disk, as the result of ``apply`` does.
"""

from __future__ import annotations

import filecmp
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.bench import process_memory
from scripts.bench.folders import check_space, work_folder
from scripts.bench.pairs import to_bf16, widened

MASKREG = Path(sys.executable).with_name("maskreg")

SHARDS = 16

WEIGHT_STD, UPDATE_STD = 0.02, 5.15e-5
"""Of normal weights and their normal update: 48 % of the coordinates move, as in on-policy distillation."""

WIDTH = 2048
"""Columns of every tensor."""

WARM_UP = 0.001
"""Gigabytes of a checkpoint that runs first and is not reported."""

BLOCK = 1 << 22
"""Elements generated at a time; most tensors have as many."""


@dataclass(frozen=True)
class Cost:
    """Cost of one command.

    Attributes:
        seconds: wall time.
        gb_per_s: 10^9 bytes of one checkpoint a second.
        of_copy: ``gb_per_s`` / that of the plain copy.
        peak_rss: peak resident set, in bytes.
    """

    seconds: float
    gb_per_s: float
    of_copy: float
    peak_rss: int


@dataclass(frozen=True)
class Result:
    """The figures of one size.

    Attributes:
        gigabytes: requested size, in 10^9 bytes.
        bytes: size of the weight files of one checkpoint.
        params: elements of one checkpoint.
        density: coordinates that moved / coordinates.
        codec: of the delta.
        artifact_bytes: everything stored.
        delta_bytes: of the delta alone: without the mask, fingerprints and small files.
        bits_per_param: ``artifact_bytes`` in bits / ``params``.
        delta_bits_per_param: ``delta_bytes`` in bits / ``params``.
        copy_seconds: of the plain copy to disk.
        copy_gb_per_s: of the plain copy to disk.
        cp_seconds: of ``cp -r`` of the target, which may stay in the page cache.
        sha256_seconds: of ``sha256sum`` of its weight files.
        extract: source and target to an artifact.
        apply: source and artifact to the target; the result was compared file by file.
        apply_to_cp_and_sha256: seconds of ``apply`` / those of ``cp`` and ``sha256sum`` together.
    """

    gigabytes: float
    bytes: int
    params: int
    density: float
    codec: str
    artifact_bytes: int
    delta_bytes: int
    bits_per_param: float
    delta_bits_per_param: float
    copy_seconds: float
    copy_gb_per_s: float
    cp_seconds: float
    sha256_seconds: float
    extract: Cost
    apply: Cost
    apply_to_cp_and_sha256: float


def make_pair(source: Path, target: Path, gigabytes: float) -> None:
    """Write a sharded bf16 source and its target; the first shard is a single tensor, like an embedding."""
    make_models(source, [target], gigabytes)


def make_models(source: Path, targets: Sequence[Path], gigabytes: float) -> None:
    """Write a sharded bf16 source and several targets of it; the first shard is a single tensor, like an embedding."""
    import numpy as np

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


def copy(folder: Path, to: Path) -> float:
    """Copy a folder's files to disk; returns the seconds it took."""
    to.mkdir()
    start = time.perf_counter()
    for path in sorted(folder.iterdir()):
        shutil.copyfile(path, to / path.name)
        with (to / path.name).open("rb+") as file:
            os.fsync(file.fileno())
    return time.perf_counter() - start


def cp_and_sha256(folder: Path, to: Path) -> tuple[float, float]:
    """Seconds of ``cp -r`` of a folder, and of ``sha256sum`` of its weight files."""
    start = time.perf_counter()
    subprocess.run(["cp", "-r", folder, to], check=True)
    copied = time.perf_counter()
    command = ["sha256sum"] if shutil.which("sha256sum") else ["shasum", "-a", "256"]
    subprocess.run([*command, *sorted(folder.glob("*.safetensors"))], check=True, stdout=subprocess.DEVNULL)
    return copied - start, time.perf_counter() - copied


def measured(folder: Path, *args: str | Path) -> tuple[float, int, Any]:
    """Run maskreg: seconds, peak resident set in bytes, and its JSON output."""
    own = {"HOME": "", "MASKREG_HOME": "home", "MASKREG_CONFIG": "config.toml"}
    env = {**os.environ, **{name: str(folder / path) for name, path in own.items()}}
    stdout = folder / "stdout.json"
    start = time.perf_counter()
    with stdout.open("wb") as out:
        code, peak = process_memory.run([MASKREG, *args, "--json"], out, folder, env)
    seconds = time.perf_counter() - start
    if code:
        raise SystemExit(f"maskreg {args[0]} failed with exit code {code}: {stdout.read_text()}")
    return seconds, peak, json.loads(stdout.read_text())


def same(left: Path, right: Path) -> bool:
    """Whether two folders hold the same files with the same bytes."""
    names = sorted(path.name for path in left.iterdir())
    if names != sorted(path.name for path in right.iterdir()):
        return False
    return filecmp.cmpfiles(left, right, names, shallow=False)[0] == names


def generate(folder: Path, gigabytes: float) -> None:
    """:func:`make_pair` in ``folder/source`` and ``folder/target``, in a process of its own.

    On Linux a child's peak memory starts at its parent's.

    Raises:
        SystemExit: it failed.
    """
    generate_models(folder, gigabytes, ["target"])


def generate_models(folder: Path, gigabytes: float, targets: Sequence[str]) -> None:
    """:func:`make_models` in ``folder``, in a process of its own.

    Raises:
        SystemExit: it failed.
    """
    args = (folder / "source", [folder / name for name in targets], gigabytes)
    generator = multiprocessing.get_context("spawn").Process(target=make_models, args=args)
    generator.start()
    generator.join()
    if generator.exitcode:
        raise SystemExit("the checkpoints could not be generated")


def bench(folder: Path, gigabytes: float) -> Result:
    """Generate, extract, apply and compare at one size, in an empty ``folder``."""
    source, target, out = folder / "source", folder / "target", folder / "out"
    generate(folder, gigabytes)
    size = size_of(target)
    copy_s = copy(target, folder / "copy")
    shutil.rmtree(folder / "copy")
    cp_s, sha256_s = cp_and_sha256(target, folder / "copy")
    shutil.rmtree(folder / "copy")

    def cost(seconds: float, peak: int) -> Cost:
        return Cost(seconds, size / seconds / 1e9, copy_s / seconds, peak)

    extract_s, extract_rss, artifact = measured(folder, "extract", source, target, "--name", "bench")
    apply_s, apply_rss, _ = measured(folder, "apply", "bench", "--source", source, "-o", out)
    if not same(out, target):
        raise SystemExit(f"the result at {gigabytes} GB is not the target")
    params, delta = artifact["manifest"]["target"]["params"], artifact["manifest"]["parts"]["delta"]
    return Result(
        gigabytes=gigabytes,
        bytes=size,
        params=params,
        density=artifact["density"],
        codec=delta["codec"],
        artifact_bytes=artifact["size"],
        delta_bytes=delta["size"],
        bits_per_param=8 * artifact["size"] / params,
        delta_bits_per_param=8 * delta["size"] / params,
        copy_seconds=copy_s,
        copy_gb_per_s=size / copy_s / 1e9,
        cp_seconds=cp_s,
        sha256_seconds=sha256_s,
        extract=cost(extract_s, extract_rss),
        apply=cost(apply_s, apply_rss),
        apply_to_cp_and_sha256=apply_s / (cp_s + sha256_s),
    )


def table(results: Sequence[Result]) -> str:
    """The figures as text."""
    lines = [f"{'GB':>6}  {'command':<18}{'peak RSS':>10}{'seconds':>9}{'GB/s':>7}{'of copy':>9}"]
    for result in results:
        size = f"{result.gigabytes:>6g}"
        plain = {"cp": result.cp_seconds, "sha256sum": result.sha256_seconds, "copy to disk": result.copy_seconds}
        for name, seconds in plain.items():
            lines.append(f"{size}  {name:<18}{'':>10}{seconds:>9.2f}{result.bytes / seconds / 1e9:>7.2f}")
        for name, cost in (("extract", result.extract), ("apply", result.apply)):
            lines.append(
                f"{size}  {name:<18}{cost.peak_rss / 1e6:>7.0f} MB{cost.seconds:>9.2f}"
                f"{cost.gb_per_s:>7.2f}{cost.of_copy:>9.2f}"
            )
        lines.append(
            f"{'':>6}  apply: {result.apply_to_cp_and_sha256:.2f} of cp + sha256sum; "
            f"{100 * result.density:.0f} % moved; "
            f"artifact {result.artifact_bytes / 1e6:.1f} MB ({result.bits_per_param:.2f} bits/param), "
            f"its delta ({result.codec}) {result.delta_bytes / 1e6:.1f} MB ({result.delta_bits_per_param:.2f})"
        )
    return "\n".join(lines)


def run_all(sizes: Sequence[float], parent: Path | None) -> list[Result]:
    """Measure at every size, in temporary folders.

    Raises:
        SystemExit: the disk is too full, a command failed, or the result was not the target.
    """
    check_space(parent, max(sizes))
    results = []
    # The first use on a machine compiles the codec and caches it on disk. That is not measured.
    for gigabytes in (WARM_UP, *sizes):
        with work_folder(parent) as folder:
            results.append(bench(folder, gigabytes))
    return results[1:]
