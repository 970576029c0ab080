"""Models that lie over several processes: ``sharing.py`` and ``sharing_loops.py``, each check in 1 to 4 of them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.repository import ROOT

SHARDED = [
    "shards_train_as_one", "changes_applied_to_a_stale_copy", "each_layout_trains_as_one",
    "uneven_shards_of_later_dimensions",
    "real_gradients_dense_and_packed", "parameters_that_sharding_replaced", "names_from_the_first_forward",
    "gradients_in_another_layout", "other_optimizers", "loaded_weights_stay",
    "packed_shards_are_clipped_by_others", "quantized_state",
    "replicas_that_a_later_hook_reduces",
]  # fmt: skip

RESUMES = [
    "resume_from_a_whole_file", "resume_from_the_first_process", "resume_from_parts",
    "share_of_another_process",
]  # fmt: skip

CHECKS = {
    "2": [*SHARDED, "sharded_as_accelerate_does", "replicas_of_ddp", "other_layouts_are_refused_by_name", "save"],
    "1": ["resume_from_a_whole_file", "resume_from_parts"],
    "3": ["uneven_shards_of_later_dimensions", *RESUMES],
    "4": ["each_layout_trains_as_one", "other_layouts_are_refused_by_name"],
    "2 others": ["resume_each_from_its_own_file", "share_of_another_process"],
}
"""By number of processes, in the order in which they run: two save what the others resume."""


@pytest.fixture(scope="module")
def folder(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What every process of all worlds wrote down."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "checks.json").write_text(json.dumps(CHECKS))
    command: list[Path | str] = [programs / "python", "tests/train/optim/world.py", folder]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    return folder


@pytest.mark.parametrize(("world", "check"), [(world, check) for world, checks in CHECKS.items() for check in checks])
def test_in_several_processes(world: str, check: str, folder: Path) -> None:
    for rank in range(int(world.partition(" ")[0])):
        held = folder / f"held-{world}-{rank}.json"
        last_words = (folder / f"said-{world}-{rank}.txt").read_text()[-3000:]
        assert held.exists() and check in json.loads(held.read_text()), last_words
