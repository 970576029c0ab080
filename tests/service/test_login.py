"""``login``, ``logout``, ``whoami`` and ``token``, with a service that listens."""

from __future__ import annotations

import io
import json
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from maskreg_cli.main import cli, main

from maskreg.service.app import create_app
from maskreg.settings.credentials import credentials_path, token_for
from tests.service.serving import ADMIN, listening, service_in

Run = Callable[..., str]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    service = service_in(tmp_path / "server")
    with listening(create_app(service)) as url:
        yield url
    service.close()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    def run(*args: str, exit: int = 0, stdin: str = "") -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        status = main(list(args))
        out, err = capsys.readouterr()
        assert status == exit, err
        return err if exit else out

    before = signal.getsignal(signal.SIGTERM)
    yield run
    signal.signal(signal.SIGTERM, before)


def as_json(run: Run, *args: str, **kwargs: Any) -> Any:
    return json.loads(run(*args, "--json", **kwargs))


def test_an_admin_makes_a_token_for_a_colleague_who_logs_in_with_it(url: str, run: Run) -> None:
    signed_in = as_json(run, "login", url, "--token-stdin", stdin=f"{ADMIN}\n")
    assert (signed_in["name"], signed_in["projects"]) == ("root", {"*": "admin"})
    assert signed_in["kept"] == str(credentials_path())
    made = as_json(run, "token", "create", "--project", "paper", "--role", "writer", "--name", "grace")
    assert (made["name"], made["project"], made["role"], made["created_by"]) == ("grace", "paper", "writer", "root")
    assert made["new_project"]  # as an admin of the server can; a mistyped one is said
    again = as_json(run, "token", "create", "--project", "paper", "--role", "reader", "--expires", "never")
    assert (again["new_project"], again["expires_at"]) == (False, None)
    run("login", url, "--token-stdin", stdin=made["token"])
    assert run("whoami").split() == ["grace", "paper", "writer"]
    assert [token["id"] for token in as_json(run, "token", "list")] == [made["id"]]
    run("token", "revoke", made["id"])
    run("whoami", exit=77)


def test_who_can_make_and_see_tokens(url: str, run: Run) -> None:
    run("login", url, "--token-stdin", stdin=ADMIN)
    for wrong in (("--expires", "4000d"), ("--name", "x" * 129)):
        run("token", "create", "--role", "reader", "--project", "a", *wrong, exit=2)
    listed = as_json(run, "token", "list", "--project", "team")
    assert [token["expires_at"] for token in listed] == [None, None]
    assert len(run("token", "list", "--project", "team", "-q").split()) == 2


def test_a_token_is_kept_if_it_is_valid_until_the_logout(url: str, run: Run) -> None:
    run("login", url, "--token-stdin", stdin="reader-token")
    run("login", url, "--token-stdin", stdin="wrong", exit=77)
    assert token_for(url) == "reader-token"
    assert as_json(run, "logout") == {"url": url, "removed": True}
    assert as_json(run, "logout", url) == {"url": url, "removed": False}
    assert token_for(url) == ""


def test_no_option_takes_a_secret() -> None:
    def options(command: click.Command) -> Iterator[click.Parameter]:
        yield from command.params
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from options(inner)

    takes = [
        name
        for parameter in options(cli)
        if isinstance(parameter, click.Option) and not parameter.is_flag
        for name in parameter.opts
        if re.search(r"\b(token|secret|password|credentials?)\b", name)
    ]
    assert takes == []
