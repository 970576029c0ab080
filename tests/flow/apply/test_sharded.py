"""Models that several processes hold, patched by all of them together."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from maskreg.artifact import arrays, layout
from maskreg.checkpoint import open_checkpoint
from tests.checkpoints import flip, make_checkpoint
from tests.flow.apply.sharding import small_objects, source_of, target_of
from tests.flow.making import extracted
from tests.live import models
from tests.live.quiet import quiet
from tests.live.test_masks import perturb
from tests.ranks import in_processes

__all__ = ["quiet"]

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints and artifacts of two updates, and of models of transformers."""
    path = tmp_path_factory.mktemp("sharded")
    torch.manual_seed(0)
    model: Any = models.qwen3_moe().to(torch.bfloat16)
    for side in ("source", "target"):
        model.save_pretrained(path / "moe" / side)
        perturb(model)
    pair = [open_checkpoint(path / "moe" / side) for side in ("source", "target")]
    extracted(path / "moe/root", pair[0], pair[1], reversible=True)
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((layout, "SHARD_BYTES"), (layout, "CHUNK_BYTES"), (arrays, "SHARD_BYTES")):
            patch.setattr(module, name, getattr(module, name))  # put back at the end
        small_objects()
        source = source_of()
        before = open_checkpoint(make_checkpoint(path / "tensors/source", source))
        for seed, update in enumerate(("first", "second")):
            after = make_checkpoint(path / f"tensors/target-{update}", target_of(source, seed))
            extracted(path / "tensors" / update, before, open_checkpoint(after), reversible=True)
    shutil.copytree(path / "tensors/first", path / "tensors/damaged")
    flip(next((path / "tensors/damaged").rglob("data.zarr/delta/c/1")))
    return path


@pytest.fixture(scope="module")
def ranks(programs: Path, directory: Path) -> list[dict[str, Any]]:
    """What :mod:`tests.flow.apply.sharding` wrote, for each process."""
    script = "tests/flow/apply/sharding.py"
    return in_processes(programs, script, directory, 2, MASKREG_HOME=str(directory / "home"))


@pytest.mark.usefixtures("quiet")
def test_every_process_holds_its_part_of_the_result(ranks: list[dict[str, Any]]) -> None:
    for of in ranks:
        assert of["moe"] == {"applied": True, "reverted": True, "state dict": True}
        assert [of["tensors"][step] for step in ("applied", "switched", "reverted")] == [True] * 3


@pytest.mark.usefixtures("quiet")
def test_what_is_staged_by_all_is_written_by_all_or_by_none(ranks: list[dict[str, Any]]) -> None:
    steps = ("only read", "committed", "committed on", "left alone", "committed back")
    for of in ranks:
        assert [of["tensors"][step] for step in steps] == [True] * len(steps)
        assert of["tensors"]["changed between"][0] == "WrongCheckpointError"


def test_each_process_reads_its_share(ranks: list[dict[str, Any]]) -> None:
    kept, read = zip(*(of["tensors"]["read"] for of in ranks), strict=True)
    share = 1 / len(ranks)
    assert max(kept) < (share + 0.1) * sum(kept)
    assert max(read) < (share + 0.1) * sum(read)
    # Tensors that every process has whole are small; all others are kept once.
    assert sum(kept) < 1.01 * sum(read)


def test_a_mistake_on_one_process_stops_all_before_anything_is_written(ranks: list[dict[str, Any]]) -> None:
    last = len(ranks) - 1
    for rank, of in enumerate(ranks):
        told = {step: of["tensors"][step] for step in ("already", "wrong bit", "other artifact", "missing", "not here")}
        assert told["already"][0] == "AlreadyAppliedError"
        assert told["wrong bit"][0] == "WrongCheckpointError"
        assert " bias: " in told["wrong bit"][1]
        assert told["other artifact"][0] == "UsageError" and f"process {last} " in told["other artifact"][1]
        own = "" if rank == last else f"process {last}: "
        assert told["missing"][0] == "WrongCheckpointError" and told["missing"][1].startswith(f"{own}tensor whole: ")
        assert told["not here"][0] == "NotFoundError"
        assert told["not here"][1].startswith(own)
        # Process 1 reads the second object, and the others learn of it.
        reader = "" if rank == 1 else "process 1: "
        assert of["tensors"]["damaged"][0] == "CorruptError"
        assert of["tensors"]["damaged"][1].startswith(reader)
        assert "data.zarr/delta/c/1" in of["tensors"]["damaged"][1]
        assert of["tensors"]["untouched"]
        assert of["tensors"]["still untouched"]


def test_under_ddp_all_copies_are_patched_or_none(ranks: list[dict[str, Any]]) -> None:
    for rank, of in enumerate(ranks):
        assert of["replicated"]["applied"]
        own = "" if rank == 1 else "process 1: "
        assert of["replicated"]["wrong bit"][1].startswith(f"{own}tensor bias: ")
    assert ranks[0]["replicated"]["untouched"]
