"""Commands of several people, run in this process: milliseconds each, so that thousands of attacks take minutes."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

from maskreg_cli.main import main

from maskreg.store.s3 import S3Store

HANG_SECONDS = 120
"""How long a command can take before it counts as hanging; they take milliseconds."""


class Hang(BaseException):
    """A command did not end."""


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it said.

    Attributes:
        args: its arguments.
        status: exit code.
        out: standard output.
        err: standard error.
    """

    args: tuple[str, ...]
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as a JSON document."""
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        """Standard output as one JSON document a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    def __str__(self) -> str:
        return f"maskreg {shlex.join(self.args)}  -> {self.status}\n{self.out}{self.err}".rstrip()


class Member:
    """A user with a home of their own: settings, a local registry."""

    def __init__(self, home: Path, variables: Mapping[str, str] | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        self.registry = home / "maskreg"
        self.variables = {
            "HOME": str(home),
            "MASKREG_HOME": str(self.registry),
            "MASKREG_CONFIG": str(home / "config.toml"),
            "AWS_EC2_METADATA_DISABLED": "true",
            "HF_HUB_OFFLINE": "1",
            **(variables or {}),
        }

    def run(self, *args: str | Path, stdin: bytes = b"") -> Said:
        """Run a command in this process."""
        words = tuple(map(str, args))
        streams = [io.TextIOWrapper(io.BytesIO(data), "utf-8") for data in (stdin, b"", b"")]
        before = signal.getsignal(signal.SIGTERM)
        with ExitStack() as stack:
            stack.enter_context(patch.dict(os.environ, self.variables))
            stack.enter_context(chdir(self.home))
            stack.enter_context(patch.object(sys, "stdin", streams[0]))
            stack.enter_context(redirect_stdout(streams[1]))
            stack.enter_context(redirect_stderr(streams[2]))
            stack.enter_context(_watched())
            status = main(words)
        signal.signal(signal.SIGTERM, before)
        out, err = (stream.buffer.getvalue().decode() for stream in streams[1:])
        return Said(words, status, out, err)

    def must(self, *args: str | Path, stdin: bytes = b"") -> Said:
        """Run a command that has to succeed."""
        said = self.run(*args, stdin=stdin)
        assert said.status == 0, str(said)
        return said


@contextmanager
def _watched() -> Iterator[None]:
    def hang(*_: object) -> NoReturn:
        raise Hang(f"no end after {HANG_SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(HANG_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def shared_clients() -> Iterator[None]:
    """One client of S3 for all commands that use the same endpoint: making one takes longer than most commands."""
    kept: dict[object, tuple[S3Store, Any]] = {}
    connect = S3Store.connect

    def shared(store: S3Store) -> Any:
        if (key := (store.url, store.options)) not in kept:
            # The store is kept as well: when it is collected, it closes its client.
            kept[key] = store, connect(store)
        return kept[key][1]

    with patch.object(S3Store, "connect", shared), patch.object(S3Store, "close", lambda store: None):
        yield
    for _, client in kept.values():
        client.close()
