"""A team: a bucket on a real S3 server with a real PostgreSQL index; races for one tag."""

from __future__ import annotations

import getpass
import signal
import subprocess
import time
from pathlib import Path

from maskreg.store import open_store
from maskreg.store.base import Store
from tests.e2e.running import Person, big_pair, same_files
from tests.servers import Postgres, S3Server


def test_a_bucket_with_a_postgres_index(
    tmp_path: Path, s3_server: S3Server, postgres: Postgres, programs: Path | None
) -> None:
    source, target = big_pair(tmp_path / "pair", 16)
    url, options = f"s3://{s3_server.new_bucket()}/masks", ["--endpoint", s3_server.endpoint]
    options += ["--catalog", postgres.new_database()]
    author, colleague = (Person(tmp_path / name, s3_server.env(), programs) for name in ("author", "colleague"))
    for person in (author, colleague):
        person.run("remote", "add", "team", url, *options)
    author.run("extract", source, target, "--name", "opd", "--family", "qwen3-8b")
    behind = author.run("push", "opd", exit=78)
    assert "maskreg db upgrade --remote team" in behind
    author.run("db", "upgrade", "--remote", "team")
    author.run("push", "opd")
    before = colleague.json("list", "--remote", "team", "--density", "..0.9")
    assert [row["name"] for row in before["names"]] == ["opd"]
    colleague.run("db", "rebuild", "--remote", "team")
    assert colleague.json("list", "--remote", "team", "--density", "..0.9") == before
    colleague.run("pull", "opd")
    colleague.run("apply", "opd", "--source", source, "-o", "out")
    assert same_files(colleague.home / "out", target)


def held_up(person: Person, store: Store) -> subprocess.Popen[bytes]:
    """A push that has begun to send, and has not written its tag, stopped."""
    for _ in range(10):  # on a crowded machine it can end before the test looks: then it starts over
        process = person.start("push", "opd")
        while process.poll() is None and not any(store.list("artifacts/")):
            time.sleep(0.001)
        process.send_signal(signal.SIGSTOP)
        if process.poll() is None and not any(store.list("refs/")):
            return process
        process.send_signal(signal.SIGCONT)
        process.communicate()
        store.delete([info.key for prefix in ("refs/", "artifacts/") for info in store.list(prefix)])
    raise AssertionError("every push was too quick to be caught")


def test_two_pushes_race_for_one_tag(tmp_path: Path, programs: Path | None) -> None:
    """One starts, reads the tag, and is held up; the other wins meanwhile; the first learns who."""
    url = (tmp_path / "remote").as_uri()
    store = open_store(url)
    # What is stopped has to be the command itself.
    people = [Person(tmp_path / "slow"), Person(tmp_path / "quick", programs=programs)]
    for person in people:
        person.run("remote", "add", "team", url)
    slow, quick = people
    slow.run("extract", *big_pair(tmp_path / "pair", 48), "--name", "opd")
    quick.run("extract", *big_pair(tmp_path / "other", 4, seed=5), "--name", "opd")
    process = held_up(slow, store)
    quick.run("push", "opd")
    process.send_signal(signal.SIGCONT)
    _, told = process.communicate()
    digest = quick.json("show", "opd")["digest"]
    assert process.returncode == 75, told
    assert digest[7:19] in told.decode() and getpass.getuser() in told.decode()
    assert quick.json("show", "opd", "--remote", "team")["digest"] == digest
    slow.run("push", "opd", "--tag", "two")
    assert {row["tag"] for row in slow.json("list", "--remote", "team")["names"]} == {"latest", "two"}
