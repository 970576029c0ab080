"""Whether the head of a cluster answers, with sockets in its place."""

from __future__ import annotations

import socket

import pytest

from maskreg.engine import ray
from maskreg.engine.ray import Head, require_answer
from maskreg.errors import UnavailableError


def test_a_head_that_goes_away_is_noticed_and_one_that_comes_back_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray, "AWAY_SECONDS", 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        address = f"127.0.0.1:{port}"
        require_answer(f"ray://{address}")
        first = Head(address)
        first.require()
    first.check()  # it has just answered
    with pytest.raises(UnavailableError, match=f"{address} does not answer any more"):
        first.require()
    monkeypatch.setattr(ray, "AWAY_SECONDS", 60)
    servers: list[socket.socket] = []
    monkeypatch.setattr("time.sleep", lambda _: servers.append(socket.create_server(("127.0.0.1", port))))
    first.require()
    assert len(servers) == 1
    servers[0].close()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "ray://127.0.0.1:port"])
def test_what_does_not_answer_is_refused(address: str) -> None:
    with pytest.raises(UnavailableError, match=f"{address}: no Ray cluster answers"):
        require_answer(address)
