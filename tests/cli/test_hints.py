"""Every command that a message, a hint or an example of the product names can be typed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from maskreg_cli.main import COMMANDS, cli
from maskreg_cli.output import Output

from maskreg.errors import UsageError
from tests.repository import ROOT, modules, tree

NO_COMMANDS = frozenset({"defines", "needs", "reads", "schema", "was", "x1"})
"""Words after ``maskreg`` in prose; ``x1`` is the name of the command itself."""

BEGINNINGS = frozenset({"config set x1", "remote add x1"})
"""Commands that other lines of the code complete."""

FACTS = {
    "on": "",
    "not_pulled": "mask",
    "elsewhere": "mask",
    "new_key": f"ed25519:{'0' * 64}",
}
"""What stands for facts in the table of next steps; a word for any other."""

FLAGS_OF_OTHERS = {
    "maskreg/catalog/engine.py": "an address in PostgreSQL's words",
    "maskreg/extras.py": "pip",
    "maskreg/native/library.py": "pip",
    "maskreg/reports/theme.py": "variables of CSS",
    "maskreg/service/pages/docs.py": "curl",
    "maskreg/service/start.py": "what starts the service is a command itself",
}
"""Modules that hold flags, and whose they are."""

_FLAG = re.compile(r"(?<!``)(?<![\w.-])(--[a-z]|-[a-zA-Z]\b(?!/))")
_OTHERS = re.compile(r"\b(aws|az|df|gcloud|git|hf|ls|maskreg|pip|python|ulimit) .*")
_NAMED = re.compile(r"\bmaskreg [a-z]")
_FACT = re.compile(r"\{(\w+)\}")
_COMMAND = re.compile(r"\bmaskreg ([a-z]\w*)((?: (?!maskreg)[^;|&()\n` ]*)*)(`?)")
_DIGEST = re.compile(r"@DIGEST|@x1|@sha256:<64 hex>")
_PLACEHOLDER = re.compile(r"<name>|\b[A-Z]{2,}[A-Z/-]*\b")


def test_every_command_that_is_named_in_a_message_parses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    named = sorted(set(mentions()))
    assert len(named) > 100
    faults = [f"{where}: maskreg {command}: {fault}" for where, command in named if (fault := fault_of(command))]
    assert not faults, "\n".join(faults)


def test_no_room_below_the_command_line_and_the_service_says_what_to_type() -> None:
    # The glossary and the tables of papers explain commands.
    allowed = ("cli/", "maskreg/service/", "maskreg/analysis/", "maskreg/glossary.py")
    named = [f"{where}: maskreg {command}" for where, command in mentions() if not where.startswith(allowed)]
    assert not named, "\n".join(named)


def test_no_room_below_the_command_line_names_a_flag() -> None:
    named = [
        f"{path}:{node.lineno}: {filled(node)}"
        for path in modules("maskreg")
        for node in (literals(path) if str(path) not in FLAGS_OF_OTHERS else ())
        if _FLAG.search(_OTHERS.sub("", filled(node)))
    ]
    assert not named, "\n".join(named)


@cache
def mentions() -> tuple[tuple[str, str], ...]:
    return tuple(_mentions())


def _mentions() -> Iterator[tuple[str, str]]:
    """Where a command is named, and what follows ``maskreg``, with ``x1`` for what is filled in."""
    for path in modules("maskreg", "cli"):
        if not _NAMED.search((ROOT / path).read_text()):
            continue
        for node in literals(path):
            for match in _COMMAND.finditer(filled(node)):
                is_beginning = match[0].endswith(" ") or f"{match[1]}{match[2]}" in BEGINNINGS
                # A command in backticks is named, not to be typed as it stands.
                is_named = bool(match[3]) and is_command(f"{match[1]}{match[2]}".split())
                if match[1] not in NO_COMMANDS and not is_beginning and not is_named:
                    yield f"{path}:{node.lineno}", f"{match[1]}{match[2]}".strip()


def literals(path: Path) -> Iterator[ast.Constant | ast.JoinedStr]:
    """The literals of a module that are no docstrings."""
    nodes = list(ast.walk(tree(path)))
    docs = {id(text) for node in nodes if (text := docstring(node)) is not None}
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    left_out = docs | inside
    for node in nodes:
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in left_out:
            yield node


def is_command(words: list[str]) -> bool:
    command: click.Command | None = cli
    with click.Context(cli) as context:
        for word in words:
            command = command.get_command(context, word) if isinstance(command, click.Group) else None
    return command is not None


def docstring(node: ast.AST) -> ast.Constant | None:
    """The node of a docstring; commands print theirs, so those are read as well."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) or not node.body:
        return None
    first = node.body[0]
    if not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
        return None
    is_command = isinstance(node, ast.FunctionDef) and any(".command" in ast.unparse(d) for d in node.decorator_list)
    return None if is_command else first.value


def filled(node: ast.Constant | ast.JoinedStr) -> str:
    """The text of a literal; what a format fills in is ``x1``, or nothing where it is glued to a word."""
    if isinstance(node, ast.Constant):
        return _FACT.sub(lambda fact: FACTS.get(fact[1], "x1"), node.value) if isinstance(node.value, str) else ""
    text = ""
    for part in node.values:
        if isinstance(part, ast.Constant):
            text += str(part.value)
        else:
            text += "" if text[-1:].isalnum() else "x1"
    return text


def fault_of(command: str) -> str:
    """Why a command cannot be typed; empty if it can, perhaps with words of a sentence after it."""
    command = (
        _DIGEST.sub(f"@sha256:{'0' * 64}", command).replace("--only x1", "--only mask").replace("--jobs x1", "--jobs 1")
    )
    words = _PLACEHOLDER.sub("x1", command.replace("...", "")).replace(", ", " , ").replace("`", " ").split()
    words = [word.strip("'.:") if not word.startswith("-") else word.rstrip("'.:,") for word in words]
    if words[0] not in COMMANDS:
        return f"there is no command {words[0]}"
    options = max((number for number, word in enumerate(words) if word.startswith("-")), default=0)
    fault = ""
    # The longest beginning that parses; what follows it has no options.
    for end in range(len(words), options, -1):
        try:
            parse(cli, words[:end])
        except (click.UsageError, UsageError) as error:
            fault = fault or str(error)
        else:
            return ""
    return fault


def parse(group: click.Group, words: list[str]) -> None:
    """Parse a command line without running it."""
    with click.Context(group, info_name="maskreg", obj=Output()) as context:
        name, command, rest = group.resolve_command(context, list(words))
        assert command is not None
        if isinstance(command, click.Group):
            if not rest:
                raise click.UsageError("a subcommand is missing")
            parse(command, rest)
            return
        command.make_context(name, rest, parent=context)
