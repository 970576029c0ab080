"""How many CPUs a process may use: the quotas of its control groups count."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from maskreg.parallel import available_cpus, worker_count
from maskreg.settings import Settings


def group(root: Path, path: str, **files: str) -> None:
    """A control group with these files."""
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text + "\n")


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which this process may run on 64 CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("text", "folders", "cpus"),
    [
        ("0::/a/b", {"a/b": {"cpu_max": "200000 100000"}}, 2),
        ("0::/a/b", {"a/b": {"cpu_max": "max 100000"}, "a": {"cpu_max": "350000 100000"}}, 4),
        ("0::/a", {"a": {"cpu_max": "50000 100000"}}, 1),
        ("0::/of/the/host", {"": {"cpu_max": "300000 100000"}}, 3),
        ("0::/a", {"a": {"cpu_max": "max 100000"}}, 64),
        ("0::/a", {"a": {"cpu_max": "what"}}, 64),
        ("", {}, 64),
    ],
)
def test_the_least_quota_counts(text: str, folders: dict[str, dict[str, str]], cpus: int, tmp_path: Path) -> None:
    groups, root = tmp_path / "cgroup", tmp_path / "root"
    groups.write_text(text)
    for path, files in folders.items():
        group(root, path, **files)
    assert available_cpus(groups, root) == cpus


@pytest.mark.usefixtures("many")
def test_without_control_groups_the_affinity_counts(tmp_path: Path) -> None:
    assert available_cpus(tmp_path / "none", tmp_path) == 64


@pytest.mark.parametrize(("cpus", "jobs", "threads"), [(1, 4, 1), (2, 8, 2), (4, 16, 4), (64, 16, 16)])
def test_jobs_follow_the_machine(
    cpus: int, jobs: int, threads: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("maskreg.settings.remotes.available_cpus", lambda: cpus)
    monkeypatch.setattr("maskreg.parallel.available_cpus", lambda: cpus)
    assert Settings.load({}, home=str(tmp_path)).jobs == jobs
    assert Settings.load({"MASKREG_JOBS": "3"}, home=str(tmp_path)).jobs == 3
    assert worker_count(None) == threads
