from __future__ import annotations

from pathlib import Path

import pytest

from maskreg.errors import ConfigError
from maskreg.train.recipes.setup import RunSetup
from maskreg.train.runs.folder import RunFolder
from maskreg.train.runs.launch import launch
from maskreg.train.runs.paths import RunPaths
from maskreg.train.runs.worker import SilentSteps


def test_a_process_that_died_is_told_by_its_last_error(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.locked() as lock:
        folder.begin(
            RunSetup(recipe="sft", source="s", data="d", mask="m"), RunPaths(source="/s", data="/d", home="/h")
        )
        # Only the processes that train read it.
        (folder.path / "paths.json").write_text('{"nonsense": 1}')
        with pytest.raises(ConfigError, match=r"torchrun ended with 1: TypeError: .*'nonsense'"):
            launch(folder, ["--nproc-per-node", "1"], SilentSteps(), lock=lock)
