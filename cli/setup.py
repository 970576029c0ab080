"""``maskreg doctor``, ``config`` and ``completion``: what the other commands need."""

from __future__ import annotations

from pathlib import Path

import click

from maskreg.workspace import verbs

from .command import Command, Group, workspace
from .next_step import next_step, stated
from .output import Output
from .values import FOLDER

_MARKS = {"ok": "ok  ", "note": "note", "bad": "BAD "}


@click.command(cls=Command, example="maskreg doctor ./checkpoints")
@click.argument("directory", required=False, type=FOLDER)
@click.pass_context
def doctor(ctx: click.Context, directory: Path | None) -> None:
    """Check the registry, its catalog, the disk and all remotes.

    Nothing is created. Exits 1 when a check fails; with -q only what is not well is printed. With DIRECTORY, what
    interrupted runs of `apply` and `report` left in it is removed.
    """
    output = ctx.ensure_object(Output)
    results = []
    for finding in verbs.doctor.findings(workspace(output), directory):
        results.append(finding)
        if not output.json and (finding.status != "ok" or not output.quiet):
            output.data(f"{_MARKS[finding.status]}  {finding.what:<14}  {finding.detail}")
            if finding.error is not None and (step := next_step(finding.error)):
                output.data(f"{'':<22}next: {step}")
    if output.json:
        output.document([stated(finding.to_json(), finding.error) for finding in results])
    ctx.exit(1 if any(finding.status == "bad" for finding in results) else 0)


@click.group(cls=Group, example="maskreg config show --origin")
def config() -> None:
    """Show and change settings.

    The environment overrides the file, which overrides defaults.
    """


@config.command(example="maskreg config show --origin")
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@click.pass_obj
def show(output: Output, origin: bool) -> None:
    """Print every setting."""
    settings = verbs.config.show(workspace=workspace(output))
    output.answer(settings)
    for setting in settings:
        output.data(f"{setting.key} = {setting.value}" + (f"    ({setting.origin})" if origin else ""))


@config.command(example="maskreg config get home")
@click.argument("key")
@click.pass_obj
def get(output: Output, key: str) -> None:
    """Print the value of KEY."""
    setting = verbs.config.get(key, workspace=workspace(output))
    output.answer({"key": setting.key, "value": setting.value})
    output.value(setting.value)


@config.command(
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


@config.command(example="maskreg config unset default_remote")
@click.argument("key")
@click.pass_obj
def unset(output: Output, key: str) -> None:
    """Remove KEY from the configuration file."""
    _write(output, key, "")


def _write(output: Output, key: str, value: str) -> None:
    written = verbs.config.set(key, value, workspace=workspace(output))
    output.tell(written, f"{key} {'set' if value else 'unset'} in {written.path}")


@click.command(
    cls=Command,
    example="""
    eval "$(maskreg completion bash)"        # in ~/.bashrc
    eval "$(maskreg completion zsh)"         # in ~/.zshrc
    maskreg completion fish > ~/.config/fish/completions/maskreg.fish
    """,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a completion script for SHELL.

    Tab then completes commands, options, names with their tags, remotes, methods, settings and paths.
    """
    from click.shell_completion import get_completion_class

    completer = get_completion_class(shell)
    assert completer is not None  # of a choice above
    script = completer(ctx.find_root().command, {}, "maskreg", "_MASKREG_COMPLETE").source()
    if shell == "bash":
        # Else bash takes the colon of name:tag for the end of a word.
        script = f"COMP_WORDBREAKS=${{COMP_WORDBREAKS//:/}}\n{script}"
    output = ctx.ensure_object(Output)
    if not output.printed({"shell": shell, "script": script}):
        output.data(script)
