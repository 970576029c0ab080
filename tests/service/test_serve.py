"""``maskreg serve``: how a server starts, tells its first token, refuses to start, and stops."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import text

from maskreg.catalog.engine import make_engine, parse_address
from maskreg.errors import CannotCreateError, ConfigError, CorruptError, FormatError
from maskreg.registry.keys import PrivateKeys, write_private_key
from maskreg.service.auth.database import Database
from maskreg.service.jobs.queue import LEASE_S, JobQueue
from maskreg.service.start import Options, open_service, serve
from maskreg.signature import PrivateKey
from tests.e2e.running import Person, big_pair, same_files
from tests.repository import ROOT
from tests.servers import wait_until
from tests.service.patching import pass_time
from tests.service.serving import until


@dataclass
class Running:
    """A server that was started as a user does."""

    said: dict[str, str | None]
    process: subprocess.Popen[bytes]
    status: int | None = None
    err: str = ""

    def get(self, path: str, token: str | None = "") -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx2.get(f"{self.said['url']}{path}", headers=headers)


@contextmanager
def serving(person: Person, *args: str, stop: signal.Signals = signal.SIGTERM) -> Iterator[Running]:
    process = person.start("serve", "--port", "0", "--json", *args)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise AssertionError(process.communicate()[1].decode())
    server = Running(json.loads(line), process)
    assert "error" not in server.said, server.said
    try:
        yield server
    finally:
        process.send_signal(stop)
        rest, err = process.communicate()
        server.status, server.err = process.returncode, err.decode()
        assert rest == b""


@pytest.fixture
def person(tmp_path: Path, programs: Path | None) -> Person:
    return Person(tmp_path / "person", programs=programs)


def test_the_first_start_tells_a_token_and_later_ones_do_not(person: Person) -> None:
    person.run("extract", ROOT / "demo" / "source", ROOT / "demo" / "target", "--name", "lab/sums")
    with serving(person) as server:
        token = server.said["token"]
        assert token
        assert [project["name"] for project in server.get("/api/v1/projects", token).json()["items"]] == ["lab"]
        assert server.get("/api/v1/whoami", token).json()["projects"] == {"*": "admin"}
        assert server.get("/readyz").json() == {"status": "ok"}
    assert server.status == 0
    lines = [json.loads(line) for line in server.err.splitlines()]
    assert {line["level"] for line in lines} == {"info"}
    routes = [line["route"] for line in lines if "route" in line]
    assert routes == ["/api/v1/projects", "/api/v1/whoami", "/readyz"]
    assert token not in server.err
    with serving(person, stop=signal.SIGINT) as server:
        assert server.said["token"] is None
        assert server.get("/api/v1/whoami", token).status_code == 200
    assert (server.status, "traceback" in server.err) == (0, False)
    stored = b"".join(path.read_bytes() for path in person.home.rglob("*") if path.is_file())
    assert token[20:].encode() not in stored


def test_a_request_that_was_begun_is_answered_before_the_end(person: Person) -> None:
    with serving(person) as server:
        port = httpx2.URL(server.said["url"] or "").port
        assert port is not None
        with socket.create_connection(("127.0.0.1", port)) as begun:
            body = b'{"name": "late"}'
            head = (
                "POST /api/v1/projects HTTP/1.1",
                f"Host: 127.0.0.1:{port}",
                f"Authorization: Bearer {server.said['token']}",
                "Content-Type: application/json",
                f"Content-Length: {len(body)}",
                "Expect: 100-continue",
            )
            begun.sendall("\r\n".join((*head, "", "")).encode())
            assert begun.recv(4096).startswith(b"HTTP/1.1 100")
            server.process.send_signal(signal.SIGTERM)

            def closed() -> bool:
                with socket.socket() as other:
                    return other.connect_ex(("127.0.0.1", port)) != 0

            assert wait_until(closed, server.process)
            begun.sendall(body)
            assert begun.recv(4096).startswith(b"HTTP/1.1 201")
        server.process.wait()
    assert server.status == 0


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    ports: list[int] = []

    def taken(started: object) -> None:
        port = int(str(getattr(started, "url", "")).rpartition(":")[2])
        ports.append(port)
        with pytest.raises(CannotCreateError, match=rf"127\.0\.0\.1:{port} ") as caught:
            serve(Options(port=port, home=str(tmp_path / "other")), lambda _: None)
        assert "--port 0" in caught.value.hint
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve(Options(port=0, home=str(tmp_path / "home")), taken)
    assert len(ports) == 1


@pytest.mark.parametrize(
    ("change", "refused"),
    [("UPDATE maskreg_schema SET version_num = 'x9'", ConfigError), ("DELETE FROM maskreg_schema", CorruptError)],
)
def test_accounts_of_another_version_or_of_none_are_refused(
    tmp_path: Path, change: str, refused: type[Exception]
) -> None:
    options = Options(home=str(tmp_path))
    open_service(options).close()
    engine = make_engine(parse_address(f"sqlite:///{tmp_path / 'service.db'}"))
    with engine.begin() as connection:
        connection.execute(text(change))
    engine.dispose()
    with pytest.raises(refused):
        open_service(options)


def test_a_password_in_a_url_is_refused_and_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        open_service(Options(store=str(tmp_path), catalog="postgresql://ada:word@db/a"))
    assert ":word" not in str(caught.value) + caught.value.hint


def test_a_server_signs_with_a_key_of_its_own_or_the_one_that_it_is_given(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with open_service(Options(home=str(home))) as service:
        own = service.registry.trust.signer
    with open_service(Options(home=str(home))) as service:
        assert own is not None and service.registry.trust.signer is not None
        assert service.registry.trust.signer.key == own.key
    with open_service(Options(home=str(home), signing_key="none")) as service:
        assert service.registry.trust.signer is None
    given = PrivateKey.generate()
    write_private_key(given, tmp_path / "key.pem")
    with open_service(Options(home=str(home), signing_key=str(tmp_path / "key.pem"))) as service:
        assert service.registry.trust.signer is not None
        assert service.registry.trust.signer.key == given.key
    assert set(PrivateKeys(home)) == {own.key, given.key}
    with pytest.raises(ConfigError, match=str(tmp_path / "nothing")):
        open_service(Options(home=str(home), signing_key=str(tmp_path / "nothing")))
    (tmp_path / "text").write_text("text")
    with pytest.raises(FormatError, match=str(tmp_path / "text")):
        open_service(Options(home=str(home), signing_key=str(tmp_path / "text")))


@dataclass(frozen=True)
class Lab:
    """A server's folders, and who is there."""

    server: Person
    client: Person
    options: tuple[str, ...]
    target: Path
    outputs: Path

    def knows(self, running: Running) -> None:
        (self.client.home / "config.toml").write_text(f'[remotes.lab]\nurl = "{running.said["url"]}"\n')
        if running.said["token"]:
            self.client.env["MASKREG_TOKEN"] = running.said["token"]

    def job(self, id: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.client.json("jobs", "show", id, "--on", "lab")
        return shown


@pytest.fixture
def lab(tmp_path: Path, programs: Path | None) -> Lab:
    source, target = big_pair(tmp_path / "models", 96)
    target = target.rename(tmp_path / "target")
    server, client = (Person(tmp_path / name, programs=programs) for name in ("server", "client"))
    server.run("extract", source, target, "--name", "team/opd", "--family", "toy")
    options: tuple[str, ...] = ("--jobs", "1", "--sources", str(source.parent), "--outputs", str(tmp_path / "outputs"))
    return Lab(server, client, options, target, tmp_path / "outputs")


def test_a_server_that_is_killed_goes_on_with_its_jobs(lab: Lab) -> None:
    with serving(lab.server, *lab.options) as running:
        lab.knows(running)
        id = lab.client.run("apply", "team/opd", "--on", "lab", "-o", "patched", "--no-wait").strip()
        drafts = lab.outputs / ".attempts" / id
        until(lambda: any(path.stat().st_blocks for path in drafts.rglob("*.safetensors")), 0.002)
        os.kill(running.process.pid, signal.SIGKILL)
    assert not (lab.outputs / "team").exists()
    with closing(Database.open(f"sqlite:///{lab.server.registry / 'service.db'}")) as database:
        pass_time(JobQueue(database), LEASE_S)
    with serving(lab.server, *lab.options) as running:
        lab.knows(running)
        assert lab.client.run("jobs", "show", id, "--wait", "--on", "lab") == "team/patched\n"
        job = lab.job(id)
        assert same_files(lab.outputs / "team" / "patched", lab.target)
        assert json.loads(lab.client.run("jobs", "list", "--on", "lab", "--json")) == [job]
    assert list((lab.outputs / ".attempts").iterdir()) == []


def test_a_server_without_workers_leaves_its_jobs_to_another_one(lab: Lab) -> None:
    folders = lab.options[2:]
    with serving(lab.server, "--jobs", "0", *folders) as running:
        lab.knows(running)
        id = lab.client.run("apply", "team/opd", "--on", "lab", "-o", "patched", "--no-wait").strip()
        with serving(lab.server, *folders):
            assert lab.client.run("jobs", "show", id, "--wait", "--on", "lab") == "team/patched\n"
    assert same_files(lab.outputs / "team" / "patched", lab.target)
