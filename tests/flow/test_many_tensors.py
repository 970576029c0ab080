"""What a tensor costs: with four times the tensors, no command opens, reads or hands over anything more often."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from maskreg.artifact.objects import VerifiedObjects
from maskreg.artifact.reader import Artifact
from maskreg.artifact.recount import recount
from maskreg.artifact.staging import StagingStore
from maskreg.flow.apply.on_disk import apply
from maskreg.parallel import BATCH_TASKS
from maskreg.store.file import FileStore
from tests.checkpoints import bf16, moved
from tests.flow.making import compared, extracted, opened, stored

COUNTED: list[tuple[Any, str]] = [
    (os, "write"),
    (FileStore, "get"),
    (FileStore, "get_into"),
    (FileStore, "head"),
    (FileStore, "list"),
    (StagingStore, "put"),
    (VerifiedObjects, "load"),
    (ThreadPoolExecutor, "submit"),
]
"""What reads a store, decodes a chunk or hands work to a thread."""


def counted(tensors: int, folder: Path, patch: pytest.MonkeyPatch) -> dict[str, Counter[str]]:
    """How often each of these is called by each command, for a checkpoint of small tensors."""
    before = {f"layers.{n}.mlp.up.weight": bf16((8, 8), n) for n in range(tensors)}
    after = {name: moved(tensor, 0.5, seed=1) for name, tensor in before.items()}
    source, target = opened(folder, before, after, shards=2)
    calls: Counter[str] = Counter()

    def counting(owner: Any, name: str) -> None:
        call: Callable[..., Any] = getattr(owner, name)

        def count(*args: Any, **options: Any) -> Any:
            calls[f"{owner.__name__}.{name}"] += 1
            return call(*args, **options)

        patch.setattr(owner, name, count)

    for owner, name in COUNTED:
        counting(owner, name)
    results: dict[str, Counter[str]] = {}

    def noted(command: str) -> None:
        results[command] = calls.copy()
        calls.clear()

    artifact = extracted(folder / "root", source, target)
    noted("extract")
    apply(Artifact.open(artifact.store, artifact.digest), source, folder / "out")
    noted("apply")
    compared([artifact, Artifact.open(artifact.store, artifact.digest)], source)
    noted("compare")
    assert not list(recount(Artifact.open(artifact.store, artifact.digest)))
    noted("verify")
    assert stored(folder / "out") == stored(folder / "target")
    return results


def test_calls_do_not_grow_with_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        few = counted(BATCH_TASKS // 4, tmp_path / "few", patch)
    many = counted(BATCH_TASKS, tmp_path / "many", monkeypatch)
    for command, calls in many.items():
        for call in calls:
            # Of 192 tensors more; they are a batch more for each pass.
            assert calls[call] <= few[command][call] + 8, (command, call)
        assert calls["VerifiedObjects.load"] <= 12
