"""Changes that one process of a machine works out, and others read."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from maskreg.artifact.reader import Artifact
from maskreg.codec.step2 import Step2
from maskreg.digest import Digest
from maskreg.errors import CorruptError, UsageError, WrongCheckpointError
from maskreg.flow.apply import shared_swaps
from maskreg.flow.apply.in_memory import stage
from maskreg.store.file import FileStore
from tests.checkpoints import bf16, f32, moved
from tests.flow.apply.test_in_memory import holds, live
from tests.flow.apply.test_staging import Tensors, deltas
from tests.flow.making import BLOCK, LEAF, extracted, opened

SOURCE: Tensors = {"long": bf16((BLOCK + LEAF + 3,), 1), "kept": bf16((9, 9), 2), "wide": f32((9,), 1)}
TARGET: Tensors = {"long": moved(SOURCE["long"], 0.01), "kept": SOURCE["kept"], "wide": f32((9,), 2)}
TABLES = b'[["long",0,"10"]]', b"[[0]]", b"\xff", b'[["long",0,20],["kept",0,-10]]  ', b'[["long",0,10]] '


@pytest.fixture
def link(tmp_path: Path) -> Artifact:
    return extracted(tmp_path / "root", *opened(tmp_path, SOURCE, TARGET))


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path / "shared"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each block that this process decodes."""
    calls: list[int] = []
    movers: Callable[..., object] = Step2.movers
    monkeypatch.setattr(Step2, "movers", lambda *args: calls.append(1) or movers(*args))  # type: ignore[func-returns-value]
    return calls


def follow(folder: Path | None, link: Artifact) -> dict[str, torch.Tensor]:
    """What a model that was the source becomes."""
    model = live(SOURCE)
    stage(model, deltas([link]), folder=folder).commit()
    return model


def test_one_process_decodes_for_all(shared: Path, link: Artifact, decoded: list[int]) -> None:
    for _ in range(3):
        assert holds(follow(shared, link), TARGET)
        assert len(decoded) == 2


def in_process(_: int, root: Path, digest: str, folder: Path, go: object) -> None:
    torch.set_num_threads(1)
    link = Artifact.open(FileStore(root), Digest(digest))
    go.wait()  # type: ignore[attr-defined]
    assert holds(follow(folder, link), TARGET)


def test_processes_at_once_have_the_same(tmp_path: Path, shared: Path, link: Artifact) -> None:
    go = multiprocessing.get_context("spawn").Barrier(3)
    torch.multiprocessing.spawn(in_process, (tmp_path / "root", str(link.digest), shared, go), 3)  # type: ignore[attr-defined, no-untyped-call]
    assert sorted(path.suffix for path in shared.iterdir()) == ["", ".moved"]


@pytest.mark.parametrize("folder", ["shared", None])
@pytest.mark.parametrize("name", ["long", "kept"])
def test_a_wrong_bit_is_refused(tmp_path: Path, link: Artifact, name: str, folder: str | None) -> None:
    follow(shared := tmp_path / folder if folder else None, link)
    before, after = (tensors[name][1].reshape(-1) for tensors in (SOURCE, TARGET))
    for place in {int(np.argmax(before != after)), *np.flatnonzero(before == after)[[0, -1]].tolist()}:
        for bit in (1, int(before[place] ^ after[place]) or 2):
            model = live(SOURCE)
            model[name].view(torch.int16).reshape(-1)[place] ^= bit
            with pytest.raises(WrongCheckpointError) as caught:
                stage(model, deltas([link]), folder=shared)
            assert caught.value.tensor == name


def struck(share: float) -> Callable[[bytes], bytes]:
    return lambda data: data[: int(share * len(data))] + b"\xff" * 16 + data[int(share * len(data)) + 16 :]


def forged(table: bytes) -> Callable[[bytes], bytes]:
    """A table of other content, whose digest is right."""
    return lambda data: Digest.of(table).encode() + b"\n" + len(table).to_bytes(8, "little") + table + data[-80:]


@pytest.mark.parametrize("damage", [lambda _: b"", *map(struck, (0, 0.3, 0.6, 0.9, 1)), *map(forged, TABLES)])
def test_what_was_damaged_is_worked_out_anew(shared: Path, link: Artifact, damage: Callable[[bytes], bytes]) -> None:
    follow(shared, link)
    (path,) = shared.glob("*.moved")
    path.write_bytes(damage(path.read_bytes()))
    assert holds(follow(shared, link), TARGET)


def test_work_that_others_could_change_is_not_used(shared: Path, link: Artifact, decoded: list[int]) -> None:
    follow(shared, link)
    (path,) = shared.glob("*.moved")
    path.chmod(0o666)
    follow(shared, link)
    assert len(decoded) == 4
    path.symlink_to(path.rename(shared / "elsewhere"))
    follow(shared, link)
    assert len(decoded) == 6
    shared.chmod(0o770)
    with pytest.raises(UsageError):
        follow(shared, link)


def test_without_disk_or_lock_it_works_alone(
    shared: Path, link: Artifact, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        model = follow(shared, link)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert holds(model, TARGET)
    monkeypatch.setattr(shared_swaps, "PATIENCE_S", 0.1)
    with (shared / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert holds(follow(shared, link), TARGET)
    assert [path.name for path in shared.iterdir()] == ["lock"]
    assert f" {os.getpid()}" in caplog.text


def test_a_model_of_which_nothing_is_coded_shares_nothing(tmp_path: Path, shared: Path) -> None:
    step = extracted(tmp_path / "root", *opened(tmp_path, SOURCE, {**SOURCE, "wide": TARGET["wide"]}))
    assert stage(live(SOURCE), deltas([step]), folder=shared).moved
    assert not shared.exists()


def test_a_damaged_link_is_refused_though_its_work_is_done(tmp_path: Path, link: Artifact, decoded: list[int]) -> None:
    follow(shared := tmp_path / "shared", link)
    (path,) = (path for path in tmp_path.glob("root/artifacts/*/*/data.zarr/delta/c/*"))
    path.write_bytes(struck(0.5)(path.read_bytes()))
    again = Artifact.open(FileStore(tmp_path / "root"), link.digest)
    with pytest.raises(CorruptError):
        stage(live(SOURCE), deltas([again]), folder=shared)
    assert len(decoded) == 2


def test_what_failed_is_not_shared_and_old_work_goes(tmp_path: Path, shared: Path) -> None:
    states, model = [SOURCE], live(SOURCE)
    for seed in range(4):
        states.append({**SOURCE, "kept": moved(states[-1]["kept"], 0.5, seed)})
        step = extracted(tmp_path / f"{seed}/root", *opened(tmp_path / str(seed), *states[-2:]))
        with pytest.raises(WrongCheckpointError):
            stage(live(TARGET), deltas([step]), folder=shared)
        stage(model, deltas([step]), folder=shared).commit()
        assert holds(model, states[-1])
        assert len(list(shared.glob("*.moved"))) == min(seed + 1, 2)
