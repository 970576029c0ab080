"""The pages of the site about commands, and the table of merge methods, which ``python -m scripts.commands`` writes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from maskreg_cli.main import SECTIONS, cli

from maskreg.flow.merge.methods import METHODS

DOCS = Path(__file__).parent.parent / "docs"

METHODS_PAGE = DOCS / "how-to" / "merge.md"

INTRODUCTION = """# Commands

Every command takes `--json` (print data and errors as JSON), `-q`/`--quiet` (print no notes and no progress; of
results the reference), `--debug` (print tracebacks) and `-h`/`--help`. Data goes to stdout, everything else to stderr.
[What maskreg promises](../concepts/promises.md) lists the exit codes.

A reference is written `[project/]name[:tag][@sha256:…]`. Where a command takes one, a digest or its first four or
more digits will do: `sha256:4be0`, `4be0`, `name@sha256:4be0`.
"""

SHARED = {"--json", "--quiet", "--debug", "--help"}
"""Options of every command, described once."""

MOST_LINKS = 5
"""Pages to link that use a command, those that use it most."""


def pages() -> dict[str, str]:
    """A page for each command and one that lists them, by path."""
    found, listed, context = {}, [INTRODUCTION], click.Context(cli, info_name="maskreg", **cli.context_settings)
    texts = {path.relative_to(DOCS): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
    for title, names in SECTIONS.items():
        listed.append(f"## {title}\n")
        for name in names:
            command = cli.get_command(context, name)
            assert command is not None
            entry = _entry(command, click.Context(command, info_name=name, parent=context), 1)
            found[f"commands/{name}.md"] = "\n".join([*entry, *_see_also(name, texts)])
            listed.append(f"- [{name}]({name}.md): {_escaped(command.get_short_help_str(120))}")
        listed.append("")
    return {"commands/index.md": "\n".join(listed), **found}


def _see_also(name: str, texts: Mapping[Path, str]) -> Iterator[str]:
    uses = {path: len(re.findall(rf"\bmaskreg {name}\b", text)) for path, text in texts.items()}
    most = sorted((path for path, count in uses.items() if count), key=lambda path: -uses[path])[:MOST_LINKS]
    if most:
        links = (f"[{texts[path].partition(chr(10))[0].lstrip('# ')}](../{path.as_posix()})" for path in most)
        yield f"See also: {', '.join(links)}.\n"


def methods_table() -> str:
    """Every merge method, with a link to its paper and the defaults of its settings."""
    rows = ["| `--method` | what it does | `--set`, with defaults |", "|---|---|---|"]
    for method in METHODS.values():
        if found := re.search(r"arXiv (\d+\.\d+)", method.paper):
            paper = f" ([{found[0]}](https://arxiv.org/abs/{found[1]}))"
        elif found := re.search(r"doi (\S+)", method.paper):
            paper = f" ([{found[0]}](https://doi.org/{found[1]}))"
        else:
            paper = f" ({method.paper})" if method.paper else ""
        settings = []
        for key, setting in method.settings.items():
            others = [word for word in setting.words if word != setting.default]
            default = setting.default if isinstance(setting.default, str) else format(setting.default, "g")
            settings.append(f"{key}={'|'.join([default, *others])}")
        settings += ["mask=REF"] if method.masked else []
        cell = f"`{_cell(' '.join(settings))}`" if settings else ""
        rows.append(f"| `{method.name}` | {method.summary}{paper} | {cell} |")
    return "\n".join(rows)


def with_methods(text: str) -> str:
    """The page about merging, with the table of methods as it is now."""
    marks = "<!-- methods -->\n", "\n<!-- /methods -->"
    return re.sub(f"(?<={marks[0]}).*(?={marks[1]})", lambda _: methods_table(), text, flags=re.DOTALL)


def _entry(command: click.Command, context: click.Context, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} {context.command_path}\n"
    yield "\n\n".join(_paragraphs(command.help or "")) + "\n"
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            inner = command.get_command(context, child)
            assert inner is not None
            yield from _entry(inner, click.Context(inner, info_name=child, parent=context), depth + 1)
        return
    yield f"```{{ .text .no-copy }}\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    if example := inspect.cleandoc(getattr(command, "example", "")):
        # With prompts, so that the site's button copies what can be typed.
        yield "```console\n" + re.sub("^", "$ ", example, flags=re.MULTILINE) + "\n```\n"
    records = [
        record
        for option in command.get_params(context)
        if isinstance(option, click.Option) and not SHARED & set(option.opts)
        if (record := option.get_help_record(context))
    ]
    if records:
        yield "| option | meaning |\n|---|---|"
        yield "\n".join(f"| `{_cell(names)}` | {_escaped(_cell(text))} |" for names, text in records) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    # A paragraph that begins with \b keeps its lines.
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            yield "```text\n" + paragraph.lstrip("\b\n") + "\n```"
        else:
            yield _escaped(" ".join(paragraph.split()))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _escaped(text: str) -> str:
    # What looks like HTML or a link outside of code.
    for mark in "<[*_":
        text = "`".join(
            part if number % 2 else part.replace(mark, f"\\{mark}") for number, part in enumerate(text.split("`"))
        )
    return text


if __name__ == "__main__":
    METHODS_PAGE.write_text(with_methods(METHODS_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
