"""What Tab offers for an argument or an option: names, remotes, methods, settings, or paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from maskreg.errors import MaskregError

if TYPE_CHECKING:
    from maskreg.workspace.verbs.search import Listing

_PATHS = ("SOURCE", "CKPT", "PATH", "FILE", "DIR", "JSONL", "STATE", "CHECKPOINT")
_REMOTE = ("remote", "remote_name")


def offer(param: click.Parameter, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Completions for the word at the cursor; none where no list of values exists."""
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
        return lambda: _names(ctx.params.get("remote"), ask_default=command in ("pull", "follow"))
    if command == "merge" and param.name == "method":
        return _merge_methods
    if command == "baseline" and param.name == "kind":
        return _baseline_kinds
    if command.startswith("config ") and param.name == "key":
        return _settings
    if command == "compare" and param.name == "explain":
        return _figures
    if param.name in ("family", "method", "project", "license"):
        field = param.name
        return lambda: sorted({value for entry in _listed() if (value := str(getattr(entry, field)))})
    return None


def _listed(remote: str | None = None, *, ask_default: bool = False) -> Listing:
    from maskreg.workspace.verbs.search import search
    from maskreg.workspace.workspace import Workspace

    with Workspace() as space:
        if ask_default and remote is None and (registry := space.remote_to_ask()) is not None:
            remote = registry.name
        return search(remote=remote, workspace=space)


def _names(remote: str | None, *, ask_default: bool) -> list[str]:
    return [str(entry.ref) for entry in _listed(remote, ask_default=ask_default)]


def _remotes() -> Iterable[str]:
    from maskreg.settings import Settings

    return Settings.load().remotes


def _settings() -> Iterable[str]:
    from maskreg.workspace.verbs import config

    return [setting.key for setting in config.show()]


def _merge_methods() -> Iterable[str]:
    from maskreg.flow.merge.methods import METHODS

    return METHODS


def _baseline_kinds() -> Iterable[str]:
    from maskreg.mask.baseline import KINDS

    return KINDS


def _figures() -> Iterable[str]:
    from maskreg.glossary import FIGURES

    return FIGURES
