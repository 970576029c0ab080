"""``maskreg completion``: completion of commands and options in a shell."""

from __future__ import annotations

import click

from .command import Command
from .output import Output


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
def command(ctx: click.Context, shell: str) -> None:
    """Print a completion script for SHELL.

    Tab then completes commands, options, names with their tags, remotes, methods, settings and paths.
    """
    from click.shell_completion import get_completion_class

    completer = get_completion_class(shell)
    if completer is None:
        raise click.UsageError(f"no completion for {shell}", ctx)
    script = completer(ctx.find_root().command, {}, "maskreg", "_MASKREG_COMPLETE").source()
    if shell == "bash":
        # Else bash takes the colon of name:tag for the end of a word.
        script = f"COMP_WORDBREAKS=${{COMP_WORDBREAKS//:/}}\n{script}"
    output = ctx.ensure_object(Output)
    if not output.printed({"shell": shell, "script": script}):
        output.data(script)
