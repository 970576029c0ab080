"""``maskreg pull ... | maskreg apply`` in plain sh: it works, or it fails and nothing is written."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.running import MASKREG, Person, big_pair, same_files


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, programs: Path | None) -> Person:
    """A user who has extracted ``opd`` and pushed it to ``lab``, and has its source and target at hand."""
    person = Person(tmp_path_factory.mktemp("person"), programs=programs)
    source, target = big_pair(person.home, 8, shards=1)
    person.run("extract", source, target, "--name", "opd")
    person.run("remote", "add", "lab", (person.home / "lab").as_uri())
    person.run("push", "opd")
    (person.home / "record.ndjson").write_text(person.run("pull", "opd"))
    return person


def another(stage: Person, home: Path, remote: str = "lab", url: str = "") -> Person:
    """A user on another machine who knows a remote, by default the first user's."""
    person = Person(home, programs=stage.programs)
    person.run("remote", "add", remote, url or (stage.home / "lab").as_uri())
    return person


@pytest.fixture(autouse=True)
def _nothing_made(stage: Person) -> None:
    shutil.rmtree(stage.home / "out", ignore_errors=True)
    shutil.rmtree(stage.home / "opd", ignore_errors=True)


def _refused(person: Person, line: str, status: int = 65) -> str:
    before = sorted(path.name for path in person.home.iterdir())
    done = person.sh(line)
    told = done.stderr.decode()
    assert done.returncode == status, told
    assert "Traceback" not in told
    assert sorted(path.name for path in person.home.iterdir()) == before
    return told


def _record(person: Person, **changes: Any) -> str:
    first, end = (person.home / "record.ndjson").read_text().splitlines()
    return "\n".join([json.dumps({**json.loads(first), **changes}), end]) + "\n"


def test_a_good_pipe_gives_the_target(stage: Person) -> None:
    done = stage.sh("maskreg pull opd | maskreg apply -o out")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode() == f"{stage.home / 'out'}\n"
    assert same_files(stage.home / "out", stage.home / "target")


def test_without_an_output_it_is_called_like_the_artifact(stage: Person) -> None:
    assert stage.sh("maskreg pull opd | maskreg apply").returncode == 0
    assert same_files(stage.home / "opd", stage.home / "target")
    _refused(stage, "maskreg pull opd | maskreg apply", 73)
    assert stage.sh("maskreg pull opd | maskreg apply --force").returncode == 0


def test_a_failure_upstream_is_a_failure(stage: Person) -> None:
    told = _refused(stage, "maskreg pull nothing-here | maskreg apply -o out")
    assert "NOT_FOUND, exit 66" in told
    told = _refused(stage, "maskreg pull --remote nowhere opd | maskreg apply -o out")
    assert "CONFIG, exit 78" in told
    # A record came before the command was killed.
    assert "next: " in _refused(stage, "sh -c 'head -1 record.ndjson; kill -9 $$' | maskreg apply -o out")


def test_a_record_of_another_digest_is_refused(stage: Person) -> None:
    (stage.home / "bad.ndjson").write_text(_record(stage, digest="sha256:" + "0" * 64, remote=""))
    told = _refused(stage, "maskreg apply -o out < bad.ndjson")
    assert "opd is sha256:000000000000" in told


def test_an_address_out_of_a_pipe_is_never_opened(stage: Person, tmp_path: Path) -> None:
    stranger = Person(tmp_path / "stranger", programs=stage.programs)
    trap = tmp_path / "trap"
    for remote in (trap.as_uri(), str(trap), str(stage.registry)):
        (stranger.home / "record.ndjson").write_text(_record(stage, remote=remote))
        _refused(stranger, "maskreg apply -o out < record.ndjson", 66)
    assert not trap.exists()


def test_on_another_machine_the_named_remote_is_asked(stage: Person, tmp_path: Path) -> None:
    colleague = another(stage, tmp_path / "colleague")
    record = stage.home / "record.ndjson"
    done = colleague.sh(f"maskreg apply --source '{stage.home / 'source'}' -o out < '{record}'")
    assert done.returncode == 0, done.stderr
    assert same_files(colleague.home / "out", stage.home / "target")


def test_only_the_delta_travels_into_a_pipe_where_there_is_one(stage: Person, tmp_path: Path) -> None:
    source, target = stage.home / "source", stage.home / "target"
    stage.run("extract", source, target, "--name", "mask", "--mask-only")
    stage.run("push", "mask")
    colleague = another(stage, tmp_path / "colleague")

    def present(name: str) -> list[str]:
        return list(colleague.json("show", name)["present"])

    done = colleague.sh(f"maskreg pull opd | maskreg apply --source '{source}' -o out")
    assert done.returncode == 0, done.stderr
    assert same_files(colleague.home / "out", target)
    assert present("opd") == ["delta"]
    pinned = f"opd@{colleague.json('show', 'opd')['digest']}"
    assert "--only mask" in colleague.run("compare", pinned, pinned, exit=66)
    # What needs the mask fetches it, and says what to type where it cannot.
    refused = colleague.sh("MASKREG_OFFLINE=1 maskreg compare opd opd")
    assert (refused.returncode, b"maskreg pull opd --only mask" in refused.stderr) == (66, True)
    colleague.run("compare", "opd", "opd")
    assert set(present("opd")) == {"delta", "mask"}
    assert colleague.sh("maskreg pull mask | cat").returncode == 0
    assert present("mask") == ["mask"]


def test_what_is_passed_on_without_its_mask_says_so(stage: Person, tmp_path: Path) -> None:
    copies = (tmp_path / "copies").as_uri()
    first = another(stage, tmp_path / "first")
    second, third = (another(stage, tmp_path / name, "copies", copies) for name in ("second", "third"))
    assert first.sh("maskreg pull opd | cat").returncode == 0
    first.run("remote", "add", "copies", copies)
    passed = first.sh("maskreg push opd --remote copies")
    assert (passed.returncode, b"maskreg pull opd --only mask" in passed.stderr) == (0, True)
    refused = second.sh("maskreg pull opd > record")
    assert (refused.returncode, b"maskreg pull opd --only delta" in refused.stderr) == (66, True)
    second.run("pull", "opd", "--only", "delta")
    refused = third.sh("maskreg pull opd --only mask")
    assert (refused.returncode, b"--only mask" in refused.stderr.partition(b"next:")[2]) == (66, False)


def test_at_a_terminal_pull_talks_to_people(stage: Person) -> None:
    terminal, end = pty.openpty()
    done = subprocess.run([MASKREG, "pull", "opd"], stdin=subprocess.DEVNULL, stdout=end, env=stage.env)
    os.close(end)
    text = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    assert done.returncode == 0
    assert "{" not in text
    assert Path(text.split("\r\n")[-2].strip()).is_dir()


def test_a_reader_that_leaves_early_is_no_error_to_talk_about(stage: Person) -> None:
    done = stage.sh("{ sleep 0.2; maskreg list; echo $? >&2; } | true")
    assert done.stderr.decode() == "141\n"
    done = stage.sh("{ sleep 0.2; maskreg --help; echo $? >&2; } | true")
    assert done.stderr.decode() == "141\n"


def test_an_interrupted_apply_leaves_nothing(tmp_path: Path, programs: Path | None) -> None:
    person = Person(tmp_path / "person", programs=programs)
    source, target = big_pair(person.home, 64)
    person.run("extract", source, target, "--name", "opd")
    for number, said in ((signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")):
        process = person.start("apply", "opd", "-o", "out")
        while process.poll() is None and not list(person.home.glob(".out.maskreg-*")):
            pass
        process.send_signal(number)
        _, told = process.communicate()
        assert process.returncode == 128 + number, told
        assert told.decode().splitlines()[-1] == f"error: {said}"
        assert "Traceback" not in told.decode()
        assert not list(person.home.glob(".out*")) and not (person.home / "out").exists()
