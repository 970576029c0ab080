"""A push of a large artifact to an S3 server: memory, requests, and what a push that is killed half way leaves to do.

What is generated: mask and coded values, at random, so that nothing compresses; small files by the thousand, that make
as many objects as a far larger artifact has; and which checkpoints these were. What is real: objects, their digests,
the server (SeaweedFS), and the pushes, each in a process of its own::

    python -m scripts.bench.scale.large --gigabytes 6 --dir FOLDER     needs twice as much room
    python -m scripts.bench.scale.large --files 6400 --dir FOLDER
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from maskreg.artifact.manifest import PartName, Side
from maskreg.artifact.presence import read_manifest
from maskreg.artifact.writer import ArtifactWriter, BlockRecord, Provenance
from maskreg.codec import DEFAULT_CODEC
from maskreg.digest import FINGERPRINT_BYTES, LEAF_NUMEL
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.transfer.push import push
from maskreg.settings import Remote, Settings, StoreOptions
from maskreg.tensors.blocks import BLOCK_NUMEL
from scripts.bench.process_memory import peak, resident
from scripts.bench.processes import environment
from tests.buckets import client_of
from tests.servers import SeaweedFS

REF = Ref.parse("large/pushed")
PARTS: tuple[PartName, ...] = ("mask", "delta")
_BLOCKS = 1_000
_DELTA_BYTES = 1 << 21
_POLL_S = 0.2
_TRIES = 8


class _Form:
    dtype = "BF16"

    def __init__(self, numel: int) -> None:
        self.shape = (numel,)


def write(home: Path, gigabytes: float, files: int) -> None:
    """Write the artifact into a local registry, and give it a name."""
    rng = np.random.default_rng(0)
    blocks = round(gigabytes * 1e9 / (BLOCK_NUMEL // 8 + _DELTA_BYTES)) or 1
    with Registry.local(_settings(home)) as local:
        with ArtifactWriter(home, PARTS) as writer:
            for start in range(0, blocks, _BLOCKS):
                count = min(_BLOCKS, blocks - start)
                form = _Form(count * BLOCK_NUMEL)
                writer.begin(f"layers.{start}.weight", role="ffn", layer="", source=form, target=form)
                for _ in range(count):
                    bits = rng.integers(0, 256, BLOCK_NUMEL // 8, np.uint8)
                    moved = int.from_bytes(bits.tobytes(), "little").bit_count()
                    writer.add_block(BlockRecord(bits, BLOCK_NUMEL, moved, moved, 1.0, delta=rng.bytes(_DELTA_BYTES)))
                leaves = rng.integers(0, 256, (count * BLOCK_NUMEL // LEAF_NUMEL, FINGERPRINT_BYTES), np.uint8)
                writer.add_leaves(leaves, leaves[::-1])
                writer.end()
            for number in range(files):
                writer.add_file(f"part-{number:05d}.json", b"%d" % number)
            numel = blocks * BLOCK_NUMEL
            source, target = (
                Side(root=f"sha256:{side:064x}", params=numel, tensors=len(writer.tensors), dtypes={"BF16": numel})
                for side in (1, 2)
            )
            digest = writer.finish(Provenance("delta", "exact", True, source, target, DEFAULT_CODEC))
        local.publish(REF, digest, card=Card())


def pushed(home: Path, endpoint: str, bucket: str) -> dict[str, Any]:
    """Push, in this process; what it took."""
    remote = Remote("lab", f"s3://{bucket}/team", options=StoreOptions(endpoint=endpoint))
    settings = _settings(home)
    requests: Counter[str] = Counter()
    with Registry.local(settings) as local, Registry.remote(remote, settings) as lab:
        lab.store._client.meta.events.register(  # type: ignore[attr-defined]
            "before-call.s3", lambda model, **_: requests.update([model.name])
        )
        before, began, cpu = resident(), time.perf_counter(), time.process_time()
        result = push(local, lab, REF)
        return {
            "sent_objects": result.sent_objects,
            "sent_gb": round(result.sent_bytes / 1e9, 3),
            "reused_gb": round(result.reused_bytes / 1e9, 3),
            "rss_before_mib": before >> 20,
            "peak_rss_mib": peak() >> 20,
            "cpu_s": round(time.process_time() - cpu, 1),
            "wall_s": round(time.perf_counter() - began, 1),
            "requests": dict(sorted(requests.items())),
        }


def measured(home: Path, server: SeaweedFS) -> dict[str, Any]:
    """A push that is killed when half of the objects are there, the push after it, and one more."""
    bucket = server.new_bucket()
    command = [sys.executable, "-m", "scripts.bench.scale.large", "--push", str(home), server.endpoint, bucket]
    env = {**environment(home), **server.env()}
    with Registry.local(_settings(home)) as local:
        objects = read_manifest(local.store, local.resolve(REF).digest)[1].objects
    figures: dict[str, Any] = {"objects": len(objects), "gb": round(sum(entry.size for entry in objects) / 1e9, 3)}
    killed = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    while killed.poll() is None and _count(server, bucket) < len(objects) // 2:
        time.sleep(_POLL_S)
    killed.kill()
    killed.wait()
    figures["there_when_killed"] = _count(server, bucket)
    for name in ("resumed", "again"):
        result = _run(command, env)
        while result.returncode:
            # The server did not answer, as a disk that is busy makes it do; whoever pushes tries again.
            figures["unanswered"] = figures.get("unanswered", 0) + 1
            if figures["unanswered"] > _TRIES:
                raise SystemExit(result.stderr)
            result = _run(command, env)
        figures[name] = json.loads(result.stdout)
    return figures


def _run(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, capture_output=True, text=True)


def _count(server: SeaweedFS, bucket: str) -> int:
    pages = client_of(server).get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="team/artifacts/")
    return sum(page.get("KeyCount", 0) for page in pages)


def _settings(home: Path) -> Settings:
    return Settings(home=home, config_path=home / "config.toml")


def main() -> None:
    """Write, push, and print the figures."""
    if sys.argv[1:2] == ["--push"]:
        print(json.dumps(pushed(Path(sys.argv[2]), *sys.argv[3:])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=0.0)
    parser.add_argument("--files", type=int, default=0, help="small files that the artifact has beside its mask")
    parser.add_argument("--dir", help="folder to work in; needs room for twice --gigabytes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="maskreg-large-", dir=options.dir) as folder:
        # The server keeps its files where temporary files are.
        tempfile.tempdir = folder
        server = SeaweedFS()
        try:
            home = Path(folder) / "home"
            write(home, options.gigabytes, options.files)
            print(json.dumps(measured(home, server), indent=2))
        finally:
            server.close()
            tempfile.tempdir = None


if __name__ == "__main__":
    main()
