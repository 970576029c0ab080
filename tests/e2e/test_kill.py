"""Ten kill -9 of each command that writes."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.killing import COMMANDS, Stage, set_up

KILLS = 10


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    yield set_up(Path(tmp_path_factory.mktemp("kill")), mebibytes=16)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_kill_leaves_nothing_torn(stage: Stage, name: str) -> None:
    assert COMMANDS[name](stage, random.Random(name), KILLS) > 0
