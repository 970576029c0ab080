"""Options that a command passes on are parameters of the use case behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest
from maskreg_cli.main import COMMANDS, cli
from maskreg_cli.output import Output

import maskreg
from scripts.reference import arguments

ON_A_SERVER = ("remote", "wait")
"""Parameters of a command that can have a server do the work."""

OWN = {
    "extract": {"checkpoints", "each", "onto", "dry_run", *ON_A_SERVER},
    "apply": {"ref_text", *ON_A_SERVER},
    "baseline": {"ref"},
    "combine": {"refs"},
    "merge": {"refs", *ON_A_SERVER},
    "compare": {"refs", "by", "verbose", "exit_code", "explain"},
    "analyze": {"operands", "by", "verbose", "explain", "trajectory", "papers", "optimizer"},
    "report": {"ref"},
}
"""Parameters that a command uses itself, by command."""


@pytest.mark.parametrize("name", OWN)
def test_options_are_parameters_of_the_use_case(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    passed = {param.name for param in command.params if param.expose_value} - OWN[name]
    use_case: Callable[..., Any] = getattr(maskreg, name)
    assert passed <= set(arguments(use_case))


def _numbers() -> Iterator[Any]:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        groups = [command, *getattr(command, "commands", {}).values()]
        for parameter in (parameter for group in groups if group is not None for parameter in group.params):
            if isinstance(parameter.type, (click.types.IntParamType, click.types.FloatParamType)):
                yield pytest.param(parameter, id=f"{name} {parameter.name}")


@pytest.mark.parametrize("parameter", list(_numbers()))
def test_numbers_are_ones_that_the_machine_can_hold(parameter: click.Parameter) -> None:
    for text in ("99999999999999999999", "9" * 5000, "nan", "inf", "-inf", "1e999"):
        if not (text.isdigit() and isinstance(parameter.type, click.types.FloatParamType)):
            with pytest.raises(click.BadParameter):
                parameter.type.convert(text, parameter, None)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_80_columns_and_names_no_bound_that_is_none(name: str) -> None:
    with click.Context(cli, info_name="maskreg", obj=Output(), terminal_width=80) as context:
        command = cli.get_command(context, name)
        assert command is not None
        told = command.get_help(click.Context(command, info_name=name, parent=context, terminal_width=80))
    assert "None" not in told
    prose = told.partition("\nExamples:")[0]
    assert max(map(len, prose.splitlines())) <= 80
