from __future__ import annotations

from pathlib import Path

import pytest

from maskreg.errors import ConfigError
from maskreg.train.recipes.setup import Places, Setup
from maskreg.train.runs.folder import Folder
from maskreg.train.runs.launch import launch
from maskreg.train.runs.worker import Unheard


def test_a_process_that_died_is_told_by_its_last_error(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run")
    with folder.locked() as lock:
        folder.begin(Setup(recipe="sft", source="s", data="d", mask="m"), Places(source="/s", data="/d", home="/h"))
        # Only the processes that train read it.
        (folder.path / "places.json").write_text('{"nonsense": 1}')
        with pytest.raises(ConfigError, match=r"torchrun ended with 1: TypeError: .*'nonsense'"):
            launch(folder, ["--nproc-per-node", "1"], Unheard(), lock=lock)
