"""Models that lie over several processes: ``sharing.py`` and ``sharing_loops.py``, each check in 1 to 4 of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

EVERYWHERE = [
    "shards_train_as_one", "hybrid_shards_train_as_one", "uneven_shards_of_later_dimensions",
    "real_gradients_packed_and_within_backward", "parameters_that_sharding_replaced", "names_from_the_first_forward",
    "gradients_in_another_layout", "sgd_with_momentum", "loaded_weights_stay",
    "packed_shards_are_clipped_by_others",
]  # fmt: skip

RESUMES = [
    "resume_from_a_whole_file", "resume_from_the_first_process", "resume_from_parts", "state_of_another_mask",
    "share_of_another_process",
]  # fmt: skip

CHECKS = {
    2: [*EVERYWHERE, "replicas_of_ddp", "other_layouts_are_refused_by_name", "save"],
    1: [*EVERYWHERE, *RESUMES],
    3: [*EVERYWHERE, *RESUMES],
    4: ["hybrid_shards_train_as_one", "other_layouts_are_refused_by_name"],
}
"""By number of processes, in the order in which they run: two save what the others resume."""

AGAIN = [*RESUMES, "resume_each_from_its_own_file"]
"""In two processes that did not save."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str]]:
    folder = tmp_path_factory.mktemp("world")

    @cache
    def results(which: str) -> dict[str, str]:
        if which != "2":
            results("2")
        return _run(folder, 2, AGAIN) if which == "again" else _run(folder, int(which), CHECKS[int(which)])

    return results


def _run(folder: Path, world: int, checks: list[str]) -> dict[str, str]:
    for old in [*folder.glob(f"held-{world}-*"), *folder.glob(f"meet-{world}")]:
        old.unlink()
    said = [folder / f"said-{world}-{rank}.txt" for rank in range(world)]
    started: list[subprocess.Popen[bytes]] = []
    for rank, path in enumerate(said):
        command = [sys.executable, "-m", "tests.train.optim.world", str(rank), str(world), str(folder), *checks]
        with path.open("wb") as file:
            started.append(subprocess.Popen(command, cwd=ROOT, stderr=file))
    for one in started:
        one.wait()
    held = [folder / f"held-{world}-{rank}.json" for rank in range(world)]
    done = [json.loads(path.read_text()) if path.exists() else [] for path in held]
    last_words = "\n".join(path.read_text()[-3000:] for path in said)
    return {name: "" if all(name in one for one in done) else last_words for name in checks}


@pytest.mark.parametrize(
    ("which", "check"),
    [
        *((str(world), check) for world, checks in CHECKS.items() for check in checks),
        *(("again", check) for check in AGAIN),
    ],
)
def test_in_several_processes(which: str, check: str, found: Callable[[str], dict[str, str]]) -> None:
    assert not found(which)[check], found(which)[check]
