"""Types of option values: references, ranges, durations, key=value, output paths."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from maskreg.digest import Digest
from maskreg.errors import UsageError
from maskreg.ref import Ref, ShortDigest, parse_artifact

from .output import Output
from .table import paragraph


class RefType(click.ParamType):  # type: ignore[type-arg] # generic in newer versions only
    """An artifact: ``[project/]name[:tag][@sha256:...]``, a digest, or the first digits of one."""

    name = "ref"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse what names an artifact."""
        return value if isinstance(value, Ref | Digest | ShortDigest) else parse_artifact(value)


class RefsType(RefType):
    """An artifact, or a pattern of references such as ``team/run:step-*``."""

    name = "refs"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Leave a pattern as it is; parse everything else."""
        from maskreg.ref import is_pattern

        return value if isinstance(value, str) and is_pattern(value) else super().convert(value, param, ctx)


class NameType(click.ParamType):  # type: ignore[type-arg] # generic in newer versions only
    """A name for an artifact: ``[project/]name[:tag]``."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Ref:
        """Parse a reference, and refuse a digest."""
        ref = value if isinstance(value, Ref) else Ref.parse(value)
        if ref.digest is not None:
            self.fail("a new artifact has no digest yet; drop @sha256:...", param, ctx)
        return ref


class RangeType(click.ParamType):  # type: ignore[type-arg] # generic in newer versions only
    """A range that includes both ends: ``0.4..0.6``, ``0.4..``, ``..0.6``, or one number."""

    name = "lo..hi"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        """Parse a range; an open end is minus or plus infinity."""
        if isinstance(value, tuple):
            return value
        from maskreg.catalog.query import parse_range

        try:
            return parse_range(value)
        except UsageError as error:
            self.fail(error.message, param, ctx)


def _bounds(least: float | None, most: float | None) -> str:
    """Bounds of a number, for the help; empty where there are none."""
    if least is None:
        return "" if most is None else f"{most:g} at most"
    return f"{least:g} or more" if most is None else f"{least:g} to {most:g}"


_MOST = (1 << 31) - 1


class IntegerType(click.IntRange):
    """A whole number that the machine can hold; at most 2^31 - 1 if nothing else is said."""

    name = "integer"

    def __init__(self, least: int, most: int = _MOST) -> None:
        super().__init__(least, most)

    def _describe_range(self) -> str:
        # The largest number of the machine is no limit worth naming; other limits are named.
        return f"{self.min} or more" if self.max == _MOST else f"{self.min} to {self.max}"


class NumberType(click.FloatRange):
    """A number: neither NaN, with which every comparison is false, nor infinite."""

    name = "number"

    def _describe_range(self) -> str:
        return _bounds(self.min, self.max)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class ShareType(NumberType):
    """A share, as ``0.01`` or ``1%``."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share, 0 to less than 1."""
        text = str(value).strip()
        number = super().convert(text.removesuffix("%"), param, ctx)
        share = float(number) / 100 if text.endswith("%") else float(number)
        if not 0 <= share < 1:
            self.fail(f"{text!r} is no share; write 0.01 or 1%.", param, ctx)
        return share


class DurationType(click.ParamType):  # type: ignore[type-arg] # generic in newer versions only
    """A length of time: ``7d``, ``12h``, ``30m``, ``0s``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Parse a length of time."""
        if isinstance(value, timedelta):
            return value
        from maskreg.settings.durations import parse_duration

        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class PairType(click.ParamType):  # type: ignore[type-arg] # generic in newer versions only
    """``key=value``."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split at the first ``=``."""
        if isinstance(value, tuple):
            return value
        key, equals, text = value.partition("=")
        if not key or not equals:
            self.fail(f"{value!r} is not key=value", param, ctx)
        return key, text


class WeightType(PairType):
    """``REF=number``."""

    name = "ref=w"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Split at the first ``=``, and parse the number."""
        key, text = super().convert(value, param, ctx)
        return key, NUMBER.convert(text, param, ctx)


class OutType(click.Path):
    """A path to write to; of a checkpoint, also a URL of object storage."""

    def __init__(self, *, of_checkpoint: bool = False) -> None:
        super().__init__(path_type=Path)
        self._of_checkpoint = of_checkpoint

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse an empty path, which would otherwise mean the current directory."""
        if value == "":
            self.fail("a path must not be empty", param, ctx)
        if isinstance(value, str) and "://" in value:
            if self._of_checkpoint:
                return value
            self.fail(f"{value} is a URL, and only checkpoints are written to buckets; give a path", param, ctx)
        return super().convert(value, param, ctx)


class FolderType(click.Path):
    """A folder that exists, or a prefix in a bucket."""

    def __init__(self) -> None:
        super().__init__(exists=True, file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Leave a URL as it is."""
        return value if isinstance(value, str) and "://" in value else super().convert(value, param, ctx)


REF = RefType()
REFS = RefsType()
NAME = NameType()
RANGE = RangeType()
DURATION = DurationType()
PAIR = PairType()
SEED = IntegerType(0, (1 << 64) - 1)
NATURAL = IntegerType(0)
POSITIVE = IntegerType(1)
NUMBER = NumberType()
SHARE = ShareType()
OUT = OutType()
CHECKPOINT_OUT = OutType(of_checkpoint=True)
WEIGHT = WeightType()
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

FORCE = click.option("--force", is_flag=True, help="Move a name that others may use; its history keeps what it was.")
"""The option of commands that give a new artifact a name."""

PAPERS = ("comp", "dssu", "geo", "pnt", "sub")
"""Papers whose tables can stand beside an analysis."""

PAPER = click.option(
    "--paper",
    "papers",
    type=click.Choice(PAPERS),
    multiple=True,
    help="Show this paper's tables beside the analysis (repeatable).",
)


def explanation(output: Output, name: str, command: str) -> None:
    """Print the glossary's entry.

    Args:
        output: where to.
        name: the figure or word, as people typed it.
        command: the command that was used, for hints.

    Raises:
        UsageError: it is not in the glossary.
    """
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


_ROLE = click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="WORD,...",
    help="Only these roles or names: attention, or q_proj,o_proj; qkvo is all four of attention (repeatable).",
)
_LAYERS = click.option("--layers", default="", metavar="RANGE,...", help="Only these layers, such as 0-11 or 0,35.")


def selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--role`` and ``--layers``."""
    return _ROLE(_LAYERS(command))
