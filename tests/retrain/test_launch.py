from __future__ import annotations

from pathlib import Path

import pytest

from maskreg.errors import ConfigError
from maskreg.retrain.folder import Folder
from maskreg.retrain.launch import launch
from maskreg.retrain.setup import Places, Setup
from maskreg.retrain.worker import Unheard


def test_a_failure_of_torchrun_is_told_in_words_not_in_rules(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run")
    with folder.locked() as lock:
        folder.begin(Setup(recipe="sft", source="s", data="d", mask="m"), Places(source="/s", data="/d", home="/h"))
        # Nobody can take part in a run of which nothing is there.
        (folder.path / "run.json").write_text("{}")
        with pytest.raises(ConfigError, match=r"torchrun ended with 1: KeyError: 'setup'"):
            launch(folder, ["--nproc-per-node", "1"], Told(), lock=lock)


class Told(Unheard):
    """Steps of a run whose setup cannot be read."""
