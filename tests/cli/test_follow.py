"""Following a run with a folder, through the command."""

from __future__ import annotations

import hashlib
import hmac
import json
import signal
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import maskreg
from maskreg.workspace.notifying import SIGNATURE
from tests.checkpoints import make_checkpoint, moved
from tests.cli.conftest import Run, tensors
from tests.e2e.running import Person
from tests.workspace.conftest import contents


def published(folder: Path, pair: tuple[Path, Path], steps: int) -> list[Path]:
    """What a run published as ``toy/run`` in the local registry: the source, and each state."""
    paths, state = [pair[0]], tensors()
    for step in range(1, steps + 1):
        state = {n: moved(t, 0.05, 100 * step + i) for i, (n, t) in enumerate(state.items())}
        paths.append(make_checkpoint(folder / f"step-{step}", state))
        maskreg.publish(paths[-1], "toy/run", source=pair[0], meta={"step": str(step)})
    return paths


class Server:
    """A server that is told of checkpoints: it answers with these states, the last of them again and again."""

    def __init__(self, states: list[int], answer: object = None) -> None:
        self.told: list[tuple[dict[str, Any], str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                expected = "sha256=" + hmac.new(b"secret", body, hashlib.sha256).hexdigest()
                signed = self.headers[SIGNATURE]
                server.told.append((json.loads(body), "" if signed is None else str(signed == expected)))
                self.send_response(states.pop(0) if len(states) > 1 else states[0])
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode() if answer else b"")

            def log_message(self, *_: object) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/update_weights_from_disk"

    def __enter__(self) -> Server:
        Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


def test_a_server_is_told_of_each_switch(
    run: Run, pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(tmp_path, pair, 1)
    line = ("follow", "toy/run", "--source", pair[0], "-o", tmp_path / "served", "--once", "--notify")
    with Server([503, 200]) as server:
        run(*line, server.url)
        monkeypatch.setenv("MASKREG_NOTIFY_SECRET", "secret")
        run(*line, server.url)
    assert [signed for _, signed in server.told] == ["", "", "True"]
    for event, _ in server.told:
        assert event["model_path"] == str((tmp_path / "served/current").resolve())
        assert event["ref"] == "toy/run"
    assert [event["links"] for event, _ in server.told] == [1, 1, 0]
    assert event["seconds"].keys() == {"fetch", "stage", "apply"}
    run(*line, server.url, status=69)  # nothing listens any more
    with Server([400]) as server:
        run(*line, server.url, status=69)
    assert len(server.told) == 1
    with Server([200], "x" * (2 << 20)) as server:
        run(*line, server.url, status=69)
    for url in ("http://", "http://user:word@127.0.0.1/", "http://192.0.2.1/"):
        run(*line, url, status=2)


def test_servers_say_what_they_serve(run: Run, pair: tuple[Path, Path], tmp_path: Path) -> None:
    published(tmp_path, pair, 3)
    latest, middle, first = (entry.digest for entry in reversed(maskreg.log("toy/run")))
    maskreg.annotate("toy/run", description="a word")
    served = [
        [{"digest": str(latest)}] * 2,
        [{"digest": str(first)}],
        [{"digest": "sha256:" + 64 * "0"}],
        [{}, {}],
        [{"digest": str(middle)}, {"digest": str(first)}],
        [{"digest": 5}],
    ]
    with ExitStack() as stack:
        servers = [stack.enter_context(Server([200], {"results": results})) for results in served]
        servers += [stack.enter_context(Server([404])), stack.enter_context(Server([500], "no"))]
        urls = [server.url.removesuffix("/update_weights_from_disk") for server in servers]
        rows = run("replicas", "toy/run", *urls, "--json").json["replicas"]
        assert run("replicas", "toy/run", *urls).out.count("note: ") == 6
    assert [row["url"] for row in rows] == urls
    assert [row["behind"] for row in rows] == [0, 2, *[None] * 6]
    assert [row["digest"] for row in rows[:2]] == [str(latest), str(first)]
    assert rows[1]["meta"] == {"step": "1"}
    assert [bool(row["fault"]) for row in rows] == [False] * 3 + [True] * 5
    assert run("replicas", "toy/run", urls[0], "--json").json["replicas"][0]["fault"]  # nothing listens any more


def test_an_anchor_is_no_newer_version(run: Run, pair: tuple[Path, Path], tmp_path: Path) -> None:
    steps = published(tmp_path, pair, 2)
    with maskreg.Publisher("toy/anchored", source=steps[0], retention=maskreg.Retention(2)) as publisher:
        links = [publisher.publish(step) for step in steps[1:]]
    digests = [str(link.digest) for link in links if link is not None]
    assert len(maskreg.log("toy/anchored")) == 3
    with ExitStack() as stack:
        servers = [stack.enter_context(Server([200], {"results": [{"digest": digest}]})) for digest in digests]
        urls = [server.url.removesuffix("/update_weights_from_disk") for server in servers]
        rows = run("replicas", "toy/anchored", *urls, "--json").json["replicas"]
    assert [row["behind"] for row in rows] == [1, 0]


def test_it_waits_for_the_tag_to_move(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    person = Person(tmp_path / "home")
    settings = maskreg.Settings(home=person.registry, config_path=tmp_path / "config.toml")
    process = person.start(
        *("follow", "toy/run", "--source", pair[0], "-o", tmp_path / "served", "--every", "0.05"), bufsize=0
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert b"waiting: there is no toy/run" in process.stderr.readline()
        state = tensors()
        with (
            maskreg.Workspace(settings) as workspace,
            maskreg.Publisher("toy/run", source=pair[0], workspace=workspace) as publisher,
        ):
            for step in range(3):
                state = {n: moved(t, 0.05, 100 * step + i) for i, (n, t) in enumerate(state.items())}
                target = make_checkpoint(tmp_path / f"step-{step}", state)
                publisher.publish(target)
                path = Path(process.stdout.readline().decode().strip())
                assert contents(path) == contents(target)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
