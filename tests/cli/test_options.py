"""Options that a command passes on are parameters of the use case behind it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from maskreg_cli.main import cli

import maskreg

OWN = {
    "extract": {"json", "quiet", "debug"},
    "apply": {"ref_text"},
    "baseline": {"ref"},
    "combine": {"refs"},
    "compare": {"refs", "by", "exit_code", "explain"},
    "analyze": {"operands", "by", "explain", "trajectory"},
    "report": {"ref"},
}
"""Parameters that a command uses itself, by command."""


@pytest.mark.parametrize("name", OWN)
def test_options_are_parameters_of_the_use_case(name: str) -> None:
    import click

    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    passed = {param.name for param in command.params if param.expose_value} - OWN[name]
    use_case: Callable[..., Any] = getattr(maskreg, name)
    assert passed <= set(inspect.signature(use_case).parameters)
