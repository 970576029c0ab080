"""The names that a server answers to."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from maskreg.errors import UsageError
from maskreg.service.hosts import KnownHosts, check_name


@pytest.mark.parametrize(
    ("names", "host", "is_known"),
    [
        (("masks.example",), "masks.example", True),
        (("masks.example",), "MASKS.example:8470", True),
        (("[::1]",), "[::1]:8470", True),
        (("*.masks.example",), "a.masks.example", True),
        (("*.masks.example",), "masks.example", False),
        (("*.masks.example",), "evilmasks.example", False),
        (("masks.example",), "masks.example@evil.example", False),
        (("masks.example",), "evil.example", False),
        (("masks.example",), "", False),
        (("*",), "anything", True),
    ],
)
def test_other_names_are_refused(names: tuple[str, ...], host: str, is_known: bool) -> None:
    app = FastAPI()
    app.get("/")(lambda: "")
    app.add_middleware(KnownHosts, names=names)
    answer = TestClient(app).get("/", headers={"Host": host})
    assert answer.status_code == (200 if is_known else 400)
    if not is_known:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == "USAGE"


def test_the_refusal_says_what_whoever_runs_the_server_types() -> None:
    app = FastAPI()
    app.add_middleware(KnownHosts, names=("localhost",))
    row = TestClient(app).get("/", headers={"Host": "masks.lab.example:8470"}).json()
    assert row["title"] == "this server does not answer to the name masks.lab.example"
    assert row["hint"] == "whoever runs it: maskreg serve --allow-host masks.lab.example"


@pytest.mark.parametrize("name", ["", "http://masks.example", "masks.example:8470", "a b", "a/b", "*x.example", "::1"])
def test_what_is_no_name_cannot_be_allowed(name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a host"):
        check_name(name)
    assert check_name("*.masks.example") == "*.masks.example"
