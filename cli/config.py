"""``maskreg config``: settings and their origin."""

from __future__ import annotations

import click

from .command import Group, workspace
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
    from maskreg.workspace.verbs import config

    settings = config.show(workspace=workspace(output))
    if output.printed(settings):
        return
    for setting in settings:
        output.data(f"{setting.key} = {setting.value}" + (f"    ({setting.origin})" if origin else ""))


@command.command(example="maskreg config get home")
@click.argument("key")
@click.pass_obj
def get(output: Output, key: str) -> None:
    """Print the value of KEY."""
    from maskreg.workspace.verbs import config

    setting = config.get(key, workspace=workspace(output))
    if not output.printed({"key": setting.key, "value": setting.value}):
        output.value(setting.value)


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
    from maskreg.workspace.verbs import config

    location = str(config.path(workspace=workspace(output)))
    if not output.printed({"path": location}):
        output.value(location)


def _write(output: Output, key: str, value: str) -> None:
    from maskreg.workspace.verbs import config

    written = config.set(key, value, workspace=workspace(output))
    output.tell(written, f"{key} {'set' if value else 'unset'} in {written.path}")
