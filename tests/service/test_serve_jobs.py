"""``maskreg serve --jobs``: one server that patches, and a client that has neither artifact nor checkpoint."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from maskreg.errors import ConfigError, UsageError
from maskreg.service.start import Options, open_service
from tests.e2e.running import Person, big_pair, same_files
from tests.service.test_serve import Running, serving


@dataclass(frozen=True)
class Lab:
    """A server's folders, and who is there.

    Attributes:
        server: starts the server; its registry has ``team/opd``.
        client: another person, with an empty home.
        options: of ``maskreg serve``.
        source, target: checkpoints of the server; ``source`` is offered.
        outputs: where jobs write.
    """

    server: Person
    client: Person
    options: tuple[str, ...]
    source: Path
    target: Path
    outputs: Path

    def knows(self, running: Running) -> None:
        """Tell the client of the server, as ``lab``, with a token of its admin."""
        (self.client.home / "config.toml").write_text(f'[remotes.lab]\nurl = "{running.said["url"]}"\n')
        if running.said["token"]:
            self.client.env["MASKREG_TOKEN"] = running.said["token"]

    def job(self, id: str) -> dict[str, Any]:
        """A job, as the client sees it."""
        shown: dict[str, Any] = self.client.json("jobs", "show", id, "--on", "lab")
        return shown

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A server over SQLite and a folder."""
    source, target = big_pair(tmp_path / "models", 32)
    target = target.rename(tmp_path / "target")
    server, client = Person(tmp_path / "server"), Person(tmp_path / "client")
    server.run("extract", source, target, "--name", "team/opd", "--family", "toy")
    options: tuple[str, ...] = ("--jobs", "1", "--sources", str(source.parent), "--outputs", str(tmp_path / "outputs"))
    return Lab(server, client, options, source, target, tmp_path / "outputs")


def test_a_server_that_is_killed_goes_on_with_its_jobs(lab: Lab) -> None:
    with serving(lab.server, *lab.options) as running:
        lab.knows(running)
        id = lab.client.run("apply", "team/opd", "--on", "lab", "-o", "patched", "--no-wait").strip()
        drafts = lab.outputs / ".attempts" / id
        lab.wait_for(lambda: any(path.stat().st_blocks for path in drafts.rglob("*.safetensors")))
        os.kill(running.process.pid, signal.SIGKILL)
    assert not (lab.outputs / "team").exists()
    with serving(lab.server, *lab.options) as running:
        lab.knows(running)
        assert lab.client.run("jobs", "show", id, "--wait", "--on", "lab") == "team/patched\n"
        job = lab.job(id)
        assert same_files(lab.outputs / "team" / "patched", lab.target)
        assert json.loads(lab.client.run("jobs", "list", "--on", "lab", "--json")) == [job]
    assert list((lab.outputs / ".attempts").iterdir()) == []


def test_a_worker_apart_from_the_server_does_its_jobs(lab: Lab) -> None:
    folders = lab.options[2:]
    with serving(lab.server, "--no-worker", *folders, "--job-limit", "running=1") as running:
        lab.knows(running)
        id = lab.client.run("apply", "team/opd", "--on", "lab", "-o", "patched", "--no-wait").strip()
        worker = lab.server.start("worker", *folders, "--json")
        assert worker.stdout is not None
        assert json.loads(worker.stdout.readline()) == {"registry": f"file://{lab.server.registry}", "jobs": 1}
        assert lab.client.run("jobs", "show", id, "--wait", "--on", "lab") == "team/patched\n"
        worker.send_signal(signal.SIGTERM)
        assert worker.communicate()[0] == b""
        assert worker.returncode == 0
    assert same_files(lab.outputs / "team" / "patched", lab.target)


@pytest.mark.parametrize(
    "options",
    [
        Options(sources=("a=b",)),
        Options(jobs=1),
        Options(worker=False),
        Options(jobs=1, sources=("base=.",), outputs="out", job_limits=("fast=1",)),
        Options(jobs=1, sources=("base=.",)),
        Options(jobs=1, sources=("base=./nothing",), outputs="out"),
        Options(jobs=1, sources=("../x=.",), outputs="out"),
        Options(jobs=1, sources=("a=.", "a=.."), outputs="out"),
        Options(jobs=1, sources=("a=.",), outputs="home/out"),
    ],
)
def test_a_server_whose_jobs_would_have_nothing_to_do_is_refused(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "home"))
    with pytest.raises((UsageError, ConfigError)):
        open_service(options)
