"""Mutated documents that got past every digest end in success or in an error about data, in bounded memory."""

from __future__ import annotations

import tracemalloc

import pytest

from tests.artifact.fuzz import Target


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return Target(tmp_path_factory.mktemp("target"))


def test_hundreds_of_attacks(target: Target) -> None:
    ends = {target.attack(case) for case in range(400)}
    # Each kind of document was both refused and, now and then, harmless.
    assert {f"{kind} FormatError" for kind in ("manifest", "table", "zarr", "entry")} < ends
    assert {f"{kind} fine" for kind in ("manifest", "table", "zarr", "entry", "shard")} < ends
    assert "shard CorruptError" in ends


def test_attacks_take_little_memory(target: Target) -> None:
    tracemalloc.start()
    try:
        for case in range(1_000, 1_050):
            target.attack(case)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20
