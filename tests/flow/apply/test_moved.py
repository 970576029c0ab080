"""Changes that one process of a machine works out, and others read."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from maskreg.artifact.reader import Artifact
from maskreg.codec.step2 import Step2
from maskreg.digest import Digest
from maskreg.errors import CorruptError, WrongCheckpointError
from maskreg.flow.apply.in_memory import stage
from maskreg.store.file import FileStore
from maskreg.update.delta import Delta
from tests.checkpoints import bf16, f32, moved
from tests.flow.apply.test_in_memory import holds, live
from tests.flow.apply.test_staging import Tensors, deltas
from tests.flow.making import BLOCK, LEAF, extracted, opened

SOURCE: Tensors = {"long": bf16((BLOCK + LEAF + 3,), 1), "kept": bf16((9, 9), 2), "wide": f32((9,), 1)}
TARGET: Tensors = {"long": moved(SOURCE["long"], 0.01), "kept": SOURCE["kept"], "wide": f32((9,), 2)}


@pytest.fixture
def link(tmp_path: Path) -> Artifact:
    return extracted(tmp_path / "root", *opened(tmp_path, SOURCE, TARGET))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each block that this process decodes."""
    calls: list[int] = []
    movers = Step2.movers

    def counted(codec: Step2, *args: object) -> object:
        calls.append(1)
        return movers(codec, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Step2, "movers", counted)
    return calls


def follow(folder: Path | None, link: Artifact) -> dict[str, torch.Tensor]:
    """What a model that was the source becomes."""
    model = live(SOURCE)
    stage(model, deltas([link]), folder=folder).commit()
    return model


def test_one_process_decodes_for_all(tmp_path: Path, link: Artifact, decoded: list[int]) -> None:
    shared = tmp_path / "shared"
    for _ in range(3):
        assert holds(follow(shared, link), TARGET)
        assert len(decoded) == 2
    moved_back = live(TARGET)
    with pytest.raises(WrongCheckpointError):
        stage(moved_back, deltas([link]), folder=shared)
    assert holds(moved_back, TARGET)


def in_process(root: Path, digest: str, folder: Path, go: object) -> None:
    torch.set_num_threads(1)
    link = Artifact.open(FileStore(root), Digest(digest))
    go.wait()  # type: ignore[attr-defined]
    assert holds(follow(folder, link), TARGET)


def test_processes_at_once_have_the_same(tmp_path: Path, link: Artifact) -> None:
    start = multiprocessing.get_context("spawn")
    go, shared = start.Barrier(3), tmp_path / "shared"
    args = (tmp_path / "root", str(link.digest), shared, go)
    processes = [start.Process(target=in_process, args=args) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert sorted(path.suffix for path in shared.iterdir()) == ["", ".moved"]


@pytest.mark.parametrize("folder", ["shared", None])
@pytest.mark.parametrize("name", ["long", "kept"])
def test_a_wrong_bit_is_refused_where_it_moves_and_elsewhere(
    tmp_path: Path, link: Artifact, name: str, folder: str | None
) -> None:
    shared, model = tmp_path / folder if folder else None, live(SOURCE)
    follow(shared, link)
    is_moved = SOURCE[name][1].reshape(-1) != TARGET[name][1].reshape(-1)
    for place in {int(np.argmax(is_moved)), *np.flatnonzero(~is_moved)[[0, -1]].tolist()}:
        for bit in (1, int(SOURCE[name][1].reshape(-1)[place] ^ TARGET[name][1].reshape(-1)[place]) or 2):
            model[name].view(torch.int16).reshape(-1)[place] ^= bit
            with pytest.raises(WrongCheckpointError) as caught:
                stage(model, deltas([link]), folder=shared)
            assert caught.value.tensor == name
            model[name].view(torch.int16).reshape(-1)[place] ^= bit
    stage(model, deltas([link]), folder=shared).commit()
    assert holds(model, TARGET)


def cut(data: bytearray, _: np.random.Generator) -> bytearray:
    return data[: len(data) // 2]


def emptied(data: bytearray, _: np.random.Generator) -> bytearray:
    return data[:0]


def grown(data: bytearray, _: np.random.Generator) -> bytearray:
    return data + b"0000"


def struck(data: bytearray, rng: np.random.Generator) -> bytearray:
    for place in (*rng.integers(0, 160, 3), *rng.integers(160, len(data), 30)):
        data[place] ^= 1 << rng.integers(8)
    return data


def out_of_place(data: bytearray, rng: np.random.Generator) -> bytearray:
    for place in rng.integers(40, len(data) // 8, 30):
        data[4 * place : 4 * place + 4] = b"\xff" * 4
    return data


@pytest.mark.parametrize("damage", [cut, emptied, grown, struck, out_of_place])
@pytest.mark.parametrize("seed", range(3))
def test_what_was_damaged_is_worked_out_anew(
    tmp_path: Path, link: Artifact, damage: Callable[[bytearray, np.random.Generator], bytearray], seed: int
) -> None:
    shared = tmp_path / "shared"
    follow(shared, link)
    (path,) = shared.glob("*.moved")
    path.write_bytes(damage(bytearray(path.read_bytes()), np.random.default_rng(seed)))
    assert holds(follow(shared, link), TARGET)


def test_a_damaged_link_is_refused_though_its_work_is_done(tmp_path: Path, link: Artifact, decoded: list[int]) -> None:
    shared = tmp_path / "shared"
    follow(shared, link)
    (path,) = (path for path in tmp_path.glob("root/artifacts/*/*/data.zarr/delta/c/*"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    again = Artifact.open(FileStore(tmp_path / "root"), link.digest)
    with pytest.raises(CorruptError):
        stage(live(SOURCE), lambda: [Delta(again)], folder=shared)
    assert len(decoded) == 2


def test_what_failed_is_not_shared_and_old_work_goes(tmp_path: Path) -> None:
    shared, states = tmp_path / "shared", [SOURCE]
    model = live(SOURCE)
    for seed in range(4):
        states.append({**SOURCE, "kept": moved(states[-1]["kept"], 0.5, seed)})
        step = extracted(tmp_path / f"{seed}/root", *opened(tmp_path / str(seed), *states[-2:]))
        with pytest.raises(WrongCheckpointError):
            stage(live(TARGET), deltas([step]), folder=shared)
        stage(model, deltas([step]), folder=shared).commit()
        assert holds(model, states[-1])
        assert len(list(shared.glob("*.moved"))) == min(seed + 1, 2)
