"""What all commands share: three options, an example in the help, and loading on demand."""

from __future__ import annotations

import difflib
import importlib
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from .exits import BROKEN_PIPE, INTERRUPTED
from .output import Output


def _turn_on(field: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def callback(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            setattr(ctx.ensure_object(Output), field, True)

    return callback


_WORDS = "maskreg.words"


def again(*first: str, without: tuple[str, ...] = ()) -> str:
    """The line that runs this command again with the same options, to suggest with something added.

    Args:
        first: words to put before those that were typed.
        without: words to leave out.
    """
    ctx = click.get_current_context()
    typed = [word for word in ctx.meta[_WORDS] if word not in without]
    return shlex.join([*ctx.command_path.split(), *first, *typed])


def _shared_options() -> list[click.Parameter]:
    flags = (
        (["--json"], "json", "Write data as JSON, errors too."),
        (["-q", "--quiet"], "quiet", "No notes and no progress; a list gives bare references."),
        (["--debug"], "debug", "Show tracebacks."),
    )
    return [
        click.Option([*names, f"_{field}"], is_flag=True, expose_value=False, callback=_turn_on(field), help=text)
        for names, field, text in flags
    ]


class _WithExample(click.Command):
    # Lines of a shell under the options, which click would otherwise wrap.
    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for line in self.example.strip().splitlines():
                formatter.write(f"  {line.strip()}\n")


class Command(_WithExample):
    """A command with ``--json``, ``--quiet``, ``--debug`` and examples under its options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_shared_options())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and keep them for hints."""
        ctx.meta[_WORDS] = tuple(args)
        return super().parse_args(ctx, args)


class Group(_WithExample, click.Group):
    """A command with subcommands; suggests the name that was meant."""

    command_class = Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; without any, show the help and end with 2."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand.

        Raises:
            click.UsageError: there is none of that name.
        """
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"there is no command {name!r}{meant}", ctx)
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """A group whose commands are imported when they are run, or listed in help.

    Command modules import no room at their top, so that help stays quick.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands' names in the order of their table."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command."""
        if cmd_name not in self._modules:
            return None
        module = importlib.import_module(f".{self._modules[cmd_name]}", __package__)
        command: click.Command = module.command
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments."""
        with _own_exits():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _own_exits():
            return super().invoke(ctx)


@contextmanager
def _own_exits() -> Iterator[None]:
    # click turns these two into exit code 1 before its caller sees them.
    try:
        yield
    except BrokenPipeError as error:
        raise SystemExit(BROKEN_PIPE) from error
    except (KeyboardInterrupt, click.Abort) as error:
        raise SystemExit(INTERRUPTED) from error
