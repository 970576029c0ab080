"""Types of option values: references, ranges, durations, key=value, output paths."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from maskreg.digest import Digest
from maskreg.disk import refuse_url
from maskreg.errors import BadRefError
from maskreg.ref import Ref, is_pattern, is_utf8, parse_artifact
from maskreg.settings.file import parse_duration

from .output import Output
from .table import paragraph

Option = Callable[[Callable[..., Any]], Callable[..., Any]]


class Parsed(click.ParamType):  # type: ignore[type-arg] # generic in newer versions only
    """Text that a function makes a value of; a ``ValueError`` of it, other than about a reference, names the option."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a text; what is no text was parsed before."""
        if not isinstance(value, str) or isinstance(value, Digest):
            return value
        try:
            return self._parse(value)
        except BadRefError:
            raise
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _text(text: str) -> str:
    if not is_utf8(text):
        raise ValueError(f"{text!r} is not text in UTF-8")
    return text


def _name(text: str) -> Ref:
    ref = Ref.parse(text)
    if ref.digest is not None:
        raise ValueError("a new artifact has no digest yet; drop @sha256:...")
    return ref


def _range(text: str) -> tuple[float, float]:
    from maskreg.catalog.query import parse_range

    return parse_range(text)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError(f"{text!r} is not key=value")
    return key, value


def _number(text: str) -> float:
    with suppress(ValueError):
        if math.isfinite(number := float(text)):
            return number
    raise ValueError(f"{text!r} is not a finite number")


def _share(text: str) -> float:
    number = text.strip().removesuffix("%")
    share = _number(number) / (100 if text.strip().endswith("%") else 1)
    if not 0 <= share < 1:
        raise ValueError(f"{text!r} is no share; write 0.01 or 1%")
    return share


_TEXT_BYTES = 1 << 20


def text_of(path: str) -> str:
    """The text of a file; ``-`` is stdin. A ``ValueError`` says why there is none."""
    try:
        with click.open_file(path, "rb") as file:
            data = file.read(_TEXT_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    if len(data) > _TEXT_BYTES:
        raise ValueError(f"{path} has more than {_TEXT_BYTES:,} bytes")
    try:
        return str(data, "utf-8-sig").replace("\r\n", "\n").rstrip("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8: {error.reason} at byte {error.start}") from error


_MOST = (1 << 31) - 1


class IntegerType(click.IntRange):
    """A whole number that the machine can hold; at most 2^31 - 1 if nothing else is said."""

    name = "integer"

    def __init__(self, least: int, most: int = _MOST) -> None:
        super().__init__(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a number."""
        number = click.INT.convert(value, param, ctx)
        if self.max is not None and number > self.max:
            self.fail(f"{number} is more than {self.max}", param, ctx)
        return super().convert(number, param, ctx)

    def _describe_range(self) -> str:
        # The largest number of the machine is no limit worth naming; other limits are named.
        return f"{self.min} or more" if self.max == _MOST else f"{self.min} to {self.max}"


class NumberType(click.FloatRange):
    """A number: neither NaN, with which every comparison is false, nor infinite."""

    name = "number"

    def _describe_range(self) -> str:
        if self.min is None:
            return ""
        return f"{self.min:g} or more" if self.max is None else f"{self.min:g} to {self.max:g}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class OutType(click.Path):
    """A path to write to."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse an empty path, which would otherwise mean the current directory, ``-`` and URLs."""
        if value == "":
            self.fail("a path must not be empty", param, ctx)
        if value == "-":
            self.fail("outputs are not written to stdout; a file of this name is ./-", param, ctx)
        if isinstance(value, str):
            refuse_url(value)
        return super().convert(value, param, ctx)


TEXT = Parsed("text", _text)
REF = Parsed("ref", parse_artifact)
REFS = Parsed("refs", lambda text: text if is_pattern(text) else parse_artifact(text))
NAME = Parsed("name", _name)
TAG = Parsed("ref", Ref.parse)
RANGE = Parsed("lo..hi", _range)
DURATION = Parsed("duration", parse_duration)
PAIR = Parsed("key=value", _pair)
SEED = IntegerType(0, (1 << 64) - 1)
POSITIVE = IntegerType(1)
NUMBER = NumberType()
SHARE = Parsed("share", _share)
OUT = OutType()
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
WEIGHT = Parsed("ref=w", lambda text: (_pair(text)[0], _number(_pair(text)[1])))
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

FORCE = click.option("--force", is_flag=True, help="Move a name that others might use; its history keeps what it was.")
"""The option of commands that give a new artifact a name."""

PAPERS = ("comp", "dssu", "geo", "pnt", "sub")
"""Papers whose tables can stand beside an analysis."""

PAPER = click.option("--paper", "papers", type=click.Choice(PAPERS), multiple=True, help="Show its tables; repeatable.")


def explanation(output: Output, name: str, command: str) -> None:
    """Print the glossary's entry."""
    from maskreg.glossary import explain

    first, *others = explain(name, command)
    if not output.json:
        for entry in (first, *others):
            for text in (f"{entry.name}: {entry.definition}", f"source: {entry.source}"):
                output.data("\n".join(paragraph(text, indent="  ")))
        return
    definition = "; ".join([first.definition, *(f"{entry.name}: {entry.definition}" for entry in others)])
    source = "; ".join(dict.fromkeys(entry.source for entry in (first, *others)))
    output.document({"figure": first.name, "definition": definition, "source": source})


def several(*options: Option) -> Option:
    """A decorator that gives a command these options, in their order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


selecting = several(
    click.option("--role", "roles", multiple=True, metavar="WORD,...", help="Only attention, q_proj, qkvo."),
    click.option("--layers", default="", metavar="RANGE,...", help="Only these layers, such as 0-11 or 0,35."),
)
"""The options of commands about the tensors that a user chooses."""
