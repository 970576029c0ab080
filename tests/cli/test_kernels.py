"""Kernels that this machine does not have are refused by every command, before it does anything."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from maskreg_cli.main import cli

from tests.kernels import VARIABLE

EACH_LINE = """
import sys
from maskreg_cli.main import main

for line in sys.stdin:
    print(main(line.split()), line, end="")
assert "numpy" not in sys.modules
"""


def command_lines(group: click.Group, *names: str) -> Iterator[str]:
    """Each command, with words for what it requires."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from command_lines(command, *names, name)
        elif command:
            words = []
            for parameter in filter(lambda parameter: parameter.required, command.params):
                words += parameter.opts[:1] if isinstance(parameter, click.Option) else []
                words.append(next(iter(getattr(parameter.type, "choices", ["word"]))))
            yield " ".join([*names, name, *words])


def test_every_command_refuses_kernels_that_are_not_there() -> None:
    lines = list(command_lines(cli))
    assert {"verify", "list", "show word", "config path"} <= set(lines)
    done = subprocess.run(
        [sys.executable, "-c", EACH_LINE],
        env=os.environ | {VARIABLE: "sse9"},
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [f"78 {line}" for line in lines]
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"next: unset {VARIABLE}\n") == len(lines)
    assert not Path(os.environ["MASKREG_HOME"]).exists()
