"""Options fit what is behind them: parameters of the use case, the code's choices, values of their type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from math import inf
from typing import Any, get_args

import click
import pytest
from maskreg_cli import analyze, table
from maskreg_cli.main import cli
from maskreg_cli.values import DURATION, PAIR, RANGE, REF, SHARE, TEXT, WEIGHT

import maskreg
from maskreg.checkpoint.roles import GROUPS
from maskreg.exchange import FORMATS
from maskreg.ref import Ref
from maskreg.workspace.verbs.compare import Group
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


@pytest.mark.torch
def test_choices_equal_those_of_the_code_which_is_not_imported_for_them() -> None:
    from maskreg.analysis.matrix import METRICS

    assert tuple(GROUPS) == table.GROUPS == get_args(Group)
    assert analyze.METRICS == METRICS


def test_convert_knows_every_format() -> None:
    command = cli.get_command(click.Context(cli), "convert")
    assert command is not None
    parameters = {param.name: param for param in command.params}
    for name in ("to", "from_"):
        choice = parameters[name].type
        assert isinstance(choice, click.Choice)
        assert list(choice.choices) == list(FORMATS)


VALUES: list[tuple[click.ParamType, str, Any]] = [  # type: ignore[type-arg] # generic in newer versions only
    *((RANGE, "0.4..0.6", (0.4, 0.6)), (RANGE, "0.4..", (0.4, inf)), (RANGE, "..0.6", (-inf, 0.6))),
    *((RANGE, "0.5", (0.5, 0.5)), (RANGE, "1e-3..2", (0.001, 2.0))),
    *((DURATION, "7d", timedelta(7)), (DURATION, "12h", timedelta(hours=12)), (DURATION, "0s", timedelta(0))),
    *((DURATION, "2w", timedelta(14)), (DURATION, "5200w", timedelta(36400))),
    *((PAIR, "lr=a=b", ("lr", "a=b")), (PAIR, "seed=", ("seed", "")), (WEIGHT, "a:b=0.5", ("a:b", 0.5))),
    *((SHARE, "5%", 0.05), (SHARE, "0.01", 0.01), (REF, "team/x:v1", Ref("team", "x", "v1"))),
]
WRONG = [
    *((RANGE, text) for text in ("", "..", "0.6..0.4", "a..b", "0.4...0.6", "nan..1", "nan", "0.4-0.6")),
    *((DURATION, text) for text in ("7", "d", "-1d", "1.5h", "7 d", "999999w", "9" * 5000 + "d", "\u0663d")),
    *((PAIR, text) for text in ("seed", "=1", "")),
    *((WEIGHT, text) for text in ("two", "two=nan", "two=x")),
    *((SHARE, text) for text in ("-1%", "100%", "nan", "x")),
    (TEXT, "\udcff"),
]


@pytest.mark.parametrize(("kind", "text", "value"), VALUES)
def test_a_value_is_parsed(kind: Any, text: str, value: object) -> None:
    assert kind.convert(text, None, None) == value
    assert kind.convert(value, None, None) == value


@pytest.mark.parametrize(("kind", "text"), WRONG)
def test_what_is_none_is_refused(kind: Any, text: str) -> None:
    with pytest.raises(click.BadParameter):
        kind.convert(text, None, None)
