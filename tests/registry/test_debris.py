"""What garbage collection removes of interrupted work, and what it leaves alone."""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta
from pathlib import Path

from maskreg.digest import Digest
from maskreg.registry import Registry
from maskreg.registry.collect import collect
from maskreg.registry.verify import verify

NOW = timedelta(0)


def debris(root: Path, name: str, *, days: float) -> Path:
    place = root / name
    place.mkdir(parents=True)
    (place / "piece").write_bytes(b"12345")
    then = time.time() - days * 86_400
    for path in (place / "piece", place):
        os.utime(path, (then, then))
    return place


def test_what_interrupted_work_left_goes(local: Registry, digest: Digest) -> None:
    assert local.root is not None
    root, host = local.root, socket.gethostname()
    dead = f"{host}-{2**22 + 1}-abc"
    old = [
        debris(root, f"staging/{dead}", days=8),
        debris(root, "staging/elsewhere-1-abc", days=8),
        debris(root, f"incoming/{digest.hex}/pull", days=8),
        debris(root, f"incoming/{digest.hex}/{dead}", days=8),
        debris(root, "analysis/" + "0" * 32, days=8),
    ]
    young = [
        debris(root, f"staging/{dead}2", days=6),
        debris(root, f"staging/{host}-{os.getpid()}-abc", days=8),
        debris(root, "incoming/" + "0" * 64 + "/pull", days=6),
        debris(root, "analysis/" + "1" * 32, days=6),
    ]
    lost = root / ".tmp" / f"{host}-{2**22 + 1}-abc"
    lost.write_bytes(b"123")
    os.utime(lost, (1, 1))
    rehearsed = collect(local, dry_run=True)
    assert all(place.exists() for place in (*old, *young))
    report = collect(local)
    assert report.debris_files == rehearsed.debris_files >= len(old)
    assert report.bytes == rehearsed.bytes >= 5 * len(old)
    assert not any(place.exists() for place in (*old, lost))
    assert all(place.exists() for place in young)
    assert verify(local).ok


def test_debris_that_is_a_link_is_not_followed(local: Registry, digest: Digest, tmp_path: Path) -> None:
    assert local.root is not None
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("years")
    (local.root / "staging").mkdir(exist_ok=True)
    (local.root / "staging" / "link").symlink_to(precious)
    collect(local, NOW)
    assert (precious / "thesis.tex").exists()


def test_what_another_host_may_still_be_writing_stays_for_a_day(local: Registry, digest: Digest) -> None:
    assert local.root is not None
    dead = f"{socket.gethostname()}-{2**22 + 1}-abc"
    running = [
        debris(local.root, "staging/elsewhere-1-abc", days=0.9),
        debris(local.root, ".tmp/elsewhere-1-abc", days=0.9),
        debris(local.root, f"incoming/{digest.hex}/pull", days=0.9),
    ]
    mine = debris(local.root, f"staging/{dead}", days=0.1)
    stale = debris(local.root, "staging/elsewhere-2-abc", days=1.1)
    collect(local, NOW)
    assert all(place.exists() for place in running)
    assert not mine.exists()
    assert not stale.exists()
