"""What commands share: base classes with common options, examples, suggestions and completion; and the workspace."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from maskreg.errors import MaskregError
from maskreg.settings import Settings
from maskreg.workspace import verbs

from .next_step import ARGUMENTS
from .output import Output
from .values import TEXT

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from maskreg.workspace.workspace import Workspace


def turning_on(field: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    """What a flag does that sets a field of the output."""

    def callback(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            setattr(ctx.ensure_object(Output), field, True)

    return callback


def workspace(output: Output) -> Workspace:
    """The workspace of the settings, closed when the command ends; it prints notes, and asks at a terminal."""
    from maskreg.workspace.workspace import Workspace

    opened = Workspace(note=output.remark)
    if sys.stdin.isatty() and sys.stderr.isatty():
        opened.confirm = output.ask
    return click.get_current_context().with_resource(opened)


def _shared_options() -> list[click.Parameter]:
    flags = (
        (["--json"], "json", "Print data and errors as JSON."),
        (["-q", "--quiet"], "quiet", "Print no notes and no progress; of results the reference."),
        (["--debug"], "debug", "Print tracebacks."),
    )
    return [
        click.Option([*names, f"_{field}"], is_flag=True, expose_value=False, callback=turning_on(field), help=text)
        for names, field, text in flags
    ]


_PATHS = ("SOURCE", "CKPT", "PATH", "FILE", "DIR", "JSONL", "STATE", "CHECKPOINT")
_REMOTE = ("remote", "remote_name")
_TABLES = {
    ("merge", "method"): "maskreg.flow.merge.methods:METHODS",
    ("baseline", "kind"): "maskreg.mask.baseline:KINDS",
    ("compare", "explain"): "maskreg.glossary:FIGURES",
}
"""By command and parameter, where the values are known by name."""


def offer(param: click.Parameter, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """What Tab offers for the word at the cursor; nothing where no list of values exists."""
    from click.shell_completion import CompletionItem

    known = _values_of(ctx, param)
    shown = str(param.make_metavar(ctx))
    items: list[CompletionItem] = []
    if known is not None:
        # A message would stand in the middle of the line that is being typed.
        with suppress(MaskregError, OSError):
            items = [CompletionItem(value) for value in known() if value.startswith(incomplete)]
    if any(word in shown for word in _PATHS) and not items:
        items = [CompletionItem(incomplete, type="file")]
    return items


def _values_of(ctx: click.Context, param: click.Parameter) -> Callable[[], Iterable[str]] | None:
    command, shown = ctx.command_path.partition(" ")[2], str(param.make_metavar(ctx))
    if param.name in _REMOTE or (command.startswith("remote ") and param.name == "name" and command != "remote add"):
        return _remotes
    if "REF" in shown or param.name in ("a", "b", "old", "refs", "words") or (command, param.name) == ("mv", "new"):
        # A pull looks for what is not here yet.
        remote, absent = ctx.params.get("remote"), command in ("pull", "follow")
        return lambda: [str(entry.ref) for entry in _listed(remote, ask_default=absent)]
    if command.startswith("config ") and param.name == "key":
        return lambda: [setting.key for setting in verbs.config.show()]
    if at := _TABLES.get((command.partition(" ")[0], param.name)):
        module, _, name = at.partition(":")
        return lambda: getattr(importlib.import_module(module), name)
    if param.name in ("family", "method", "project", "license"):
        field = param.name
        return lambda: sorted({value for entry in _listed() if (value := str(getattr(entry, field)))})
    return None


def _listed(remote: str | None = None, *, ask_default: bool = False) -> verbs.search.Listing:
    from maskreg.workspace.workspace import Workspace

    with Workspace() as space:
        if ask_default and remote is None and (registry := space.remote_to_ask()) is not None:
            remote = registry.name
        return verbs.search.search(remote=remote, workspace=space)


def _remotes() -> Iterable[str]:
    return Settings.load().remotes


class _WithExample(click.Command):
    # Prints shell lines under the options as they are; click would wrap an epilog.
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
        for param in self.params:
            # A path can be any bytes.
            if param.type is click.STRING and not any(word in (param.metavar or "") for word in _PATHS):
                param.type = TEXT
            # These complete themselves.
            if not isinstance(param.type, click.Choice | click.Path):
                param.shell_complete = partial(offer, param)  # type: ignore[method-assign]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and keep them for next steps."""
        ctx.meta[ARGUMENTS] = tuple(args)
        ctx.ensure_object(Output).context = ctx
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        # Also where the command would not need them, so that all agree.
        if os.environ.get("MASKREG_KERNELS"):
            from maskreg.native import library

            library()
        with ctx.ensure_object(Output).at_work(ctx.command_path.partition(" ")[2]):
            return super().invoke(ctx)


_SYNONYMS = (("list", "ls"), ("remove", "rm", "delete"), ("show", "info", "inspect"))


class Group(_WithExample, click.Group):
    """A command with subcommands; suggests the nearest name for one that does not exist."""

    command_class = Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; without any, print the help to stderr and exit with 2."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand."""
        name = args[0]
        if self.get_command(ctx, name) is None:
            # Users of other tools type their words: git remote rm, docker volume ls.
            known = [other for words in _SYNONYMS if name in words for other in words if self.get_command(ctx, other)]
            args[:1] = [name := known[0] if known else name]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            import difflib

            matches = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            suggestion = f"; did you mean {matches[0]!r}?" if matches else ""
            raise click.UsageError(f"there is no command {name!r}{suggestion}", ctx)
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """A group whose command modules are imported when a command runs or is listed in the help.

    Command modules import heavy packages inside functions, so that the help stays fast.

    Args:
        sections: by heading in the help, each command and its module beside this one.
    """

    def __init__(
        self, *args: Any, sections: Mapping[str, Sequence[str]], modules: Mapping[str, str], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections
        self._modules = {name: modules.get(name, name) for names in sections.values() for name in names}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands' names, in the order of the help."""
        return list(self._modules)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print each section with its commands."""
        # One width for all sections, so that their columns line up.
        width = max(map(len, self._modules))
        help_width = formatter.width - width - 6
        for heading, names in self._sections.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [
                (name.ljust(width), command.get_short_help_str(help_width)) for name, command in commands if command
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command's module."""
        if cmd_name not in self._modules:
            return None
        module, _, name = self._modules[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(f".{module}", __package__), name or "command")
        return command
