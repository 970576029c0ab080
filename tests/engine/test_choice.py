"""Which engine is at hand, and how one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskreg.engine import is_here, ordered, parse_engine, running_on
from maskreg.errors import ConfigError
from maskreg.settings import Settings
from maskreg.workspace.workspace import Workspace


@pytest.mark.parametrize("text", ["", "dask", "ray://", "ray:head", "threads://head:1"])
def test_engines_that_there_are_not(text: str) -> None:
    assert parse_engine("ray://head:10001", "--engine")
    with pytest.raises(ConfigError):
        parse_engine(text, "--engine")


def test_threads_are_the_default_and_come_back() -> None:
    assert is_here()
    with running_on("ray"):  # nothing starts before something is handed out
        assert not is_here()
        with running_on("threads"):
            assert list(ordered(abs, [-1, -2], jobs=2)) == [1, 2]
        assert not is_here()
    assert is_here()


def test_the_setting_is_checked_where_it_is_read() -> None:
    settings = Settings.load(env={"MASKREG_ENGINE": "ray", "MASKREG_WORKERS": "64"})
    assert (settings.engine, settings.workers) == ("ray", 64)
    for wrong in ({"MASKREG_ENGINE": "dask"}, {"MASKREG_WORKERS": "-1"}):
        with pytest.raises(ConfigError):
            Settings.load(env=wrong)


def test_a_use_case_within_another_one_runs_on_the_same_engine(tmp_path: Path) -> None:
    there, here = (Settings(home=tmp_path, config_path=tmp_path / "c", engine=name) for name in ("ray", "threads"))
    with Workspace(there) as outer, Workspace(here) as inner:
        with outer.engine("sweep"):
            with inner.engine("extract"):
                assert not is_here()
            assert not is_here()
        with inner.engine("extract"):
            assert is_here()
