"""``maskreg config``: settings and their origin."""

from __future__ import annotations

import click

from maskreg.errors import NotFoundError

from .command import Group
from .output import Output


@click.group(cls=Group, example="maskreg config show --origin")
def command() -> None:
    """Show and change settings.

    Flags override the environment, which overrides the file, which overrides defaults.
    """


@command.command(example="maskreg config show --origin")
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@click.pass_obj
def show(output: Output, origin: bool) -> None:
    """Print every setting."""
    from .places import settings

    rows = settings().items()
    if output.json:
        output.document([{"key": k, "value": v, "origin": o} for k, v, o in rows])
        return
    for key, value, source in rows:
        output.data(f"{key} = {value}" + (f"    ({source})" if origin else ""))


@command.command(example="maskreg config get home")
@click.argument("key")
@click.pass_obj
def get(output: Output, key: str) -> None:
    """Print the value of KEY."""
    from .places import settings

    values = {k: v for k, v, _ in settings().items()}
    if key not in values:
        raise NotFoundError(f"{key!r} is not set", hint="maskreg config show")
    if output.json:
        output.document({"key": key, "value": values[key]})
    else:
        output.data(values[key])


@command.command(
    "set",
    example="""
    maskreg config set default_remote lab
    maskreg config set remotes.lab.region eu-central-1
    """,
)
@click.argument("key")
@click.argument("value")
@click.pass_obj
def set_(output: Output, key: str, value: str) -> None:
    """Write VALUE for KEY into the configuration file."""
    _write(output, key, value)


@command.command(example="maskreg config unset default_remote")
@click.argument("key")
@click.pass_obj
def unset(output: Output, key: str) -> None:
    """Remove KEY from the configuration file."""
    _write(output, key, "")


@command.command(example="maskreg config path")
@click.pass_obj
def path(output: Output) -> None:
    """Print the path of the configuration file, which need not exist."""
    from .places import settings

    location = str(settings().config_path)
    if output.json:
        output.document({"path": location})
    else:
        output.data(location)


def _write(output: Output, key: str, value: str) -> None:
    from maskreg.settings import set_value

    from .places import settings

    location = settings().config_path
    set_value(location, key, value)
    if output.json:
        output.document({"key": key, "value": value or None, "path": str(location)})
    else:
        output.note(f"{key} {'set' if value else 'unset'} in {location}")
