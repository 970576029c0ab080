"""A large sharded pair through a bucket: extract and apply with bounded memory, and the same digest.

The pair is generated shard by shard; each shard is sent to an S3 server (SeaweedFS, on a disk) and deleted here. Then
`extract` reads both sides from the bucket, `apply` writes the target into it, and `extract` of what it wrote must give
the digest of the first. With --local, the same pair on the disk must give it too.

    scripts/bench/run large --gigabytes 10 --dir FOLDER
    scripts/bench/run large --gigabytes 1 --local
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scripts.bench.arguments import positive
from scripts.bench.process_memory import usage
from scripts.bench.processes import environment
from tests.buckets import client_of
from tests.checkpoints import Tensor, write_safetensors
from tests.servers import SeaweedFS

MASKREG = Path(sys.executable).with_name("maskreg")

SHARD_BYTES = 1 << 29
TENSOR_SHAPE = (4096, 4096)
STRIDE = 16
"""One coordinate in so many moves, by one ULP step."""

LIMIT = 1_500_000_000
"""Bytes that no process may have resident."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the figures, and exit 1 when a digest differs or a process took too much."""
    parser = argparse.ArgumentParser(
        "scripts/bench/run large", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=positive, default=10.0, help="of each checkpoint")
    parser.add_argument("--local", action="store_true", help="extract the same pair from the disk too")
    parser.add_argument("--dir", help="folder to work in; needs three times --gigabytes")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="maskreg-large-", dir=options.dir) as folder:
        # The server keeps its files where temporary files are.
        tempfile.tempdir = folder
        server = SeaweedFS()
        try:
            figures = measured(server, Path(folder), options.gigabytes, local=options.local)
        finally:
            server.close()
            tempfile.tempdir = None
    print(json.dumps(figures, indent=2))
    return 0 if figures["same digest"] and float(str(figures["largest process MB"])) <= LIMIT / 1e6 else 1


def measured(server: SeaweedFS, folder: Path, gigabytes: float, *, local: bool) -> dict[str, object]:
    """CPU seconds and peak memory of every command, memory of the server, and whether the digests are equal."""
    bucket = server.new_bucket()
    size = _upload(server, bucket, folder, gigabytes, keep=local)
    env = {**environment(folder / "home"), **server.env()}
    source, target, out = (f"s3://{bucket}/{name}" for name in ("source", "target", "out"))
    commands = {
        "extract": ["extract", source, target, "--name", "large:bucket"],
        "apply": ["apply", "large:bucket", "--source", source, "-o", out],
        "extract of what apply wrote": ["extract", source, out, "--name", "large:again"],
    }
    if local:
        paths = [str(folder / name) for name in ("source", "target")]
        commands["extract from the disk"] = ["extract", *paths, "--name", "large:disk"]
    took: dict[str, dict[str, float]] = {}
    digests = set()
    for name, words in commands.items():
        print(name, file=sys.stderr)
        said = folder / "said.json"
        with said.open("wb") as stdout:
            used = usage([MASKREG, *words, "--json"], stdout, folder, env)
        if used.code:
            raise SystemExit(f"{name} ended with {used.code}: {said.read_text()}")
        took[name] = {"CPU s": round(used.cpu, 1), "peak MB": round(used.peak / 1e6)}
        if "extract" in name:
            digests.add(json.loads(said.read_text())["digest"])
    server_peak = server.peak_bytes()
    return {
        "bytes of each checkpoint": size,
        "commands": took,
        "server peak MB": round(server_peak / 1e6),
        "largest process MB": round(max(server_peak / 1e6, *(row["peak MB"] for row in took.values()))),
        "digest": sorted(digests),
        "same digest": len(digests) == 1,
    }


def _upload(server: SeaweedFS, bucket: str, folder: Path, gigabytes: float, *, keep: bool) -> int:
    """Generate both sides and send them; the size of one."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal(TENSOR_SHAPE, np.float32) * np.float32(0.02)
    base = (values.view(np.uint32) >> 16).astype(np.uint16)
    shards = max(2, round(gigabytes * 1e9 / SHARD_BYTES))
    client, size = client_of(server), 0
    weight_map: dict[str, str] = {}
    for side in ("source", "target"):
        (folder / side).mkdir()
        for number in range(shards):
            path = folder / side / f"model-{number + 1:05}-of-{shards:05}.safetensors"
            tensors = dict(_tensors(base, number, moved=side == "target"))
            write_safetensors(path, tensors, {"format": "pt"})
            weight_map |= dict.fromkeys(tensors, path.name)
            size += path.stat().st_size
            client.upload_file(str(path), bucket, f"{side}/{path.name}")
            if not keep:
                path.unlink()
            print(f"{side}: {number + 1} of {shards} shards", file=sys.stderr)
        index = folder / side / "model.safetensors.index.json"
        index.write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": weight_map}))
        client.upload_file(str(index), bucket, f"{side}/{index.name}")
        if not keep:
            shutil.rmtree(folder / side)
    return size // 2


def _tensors(base: npt.NDArray[np.uint16], shard: int, *, moved: bool) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a shard: each the same values in another order."""
    count = SHARD_BYTES // base.nbytes
    for number in range(shard * count, (shard + 1) * count):
        values = np.roll(base.reshape(-1), 4099 * number)
        if moved:
            values[number % STRIDE :: STRIDE] ^= 1
        yield f"model.layers.{number}.mlp.up_proj.weight", ("BF16", values.reshape(base.shape))


if __name__ == "__main__":
    sys.exit(main())
