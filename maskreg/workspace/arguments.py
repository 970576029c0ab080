"""Arguments of use cases: a value of the wrong type is refused before any work begins, with what is accepted."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from functools import wraps
from io import TextIOBase
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from maskreg.bucket import BucketPath
from maskreg.errors import UsageError

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


class Accepted(NamedTuple):
    """What an argument may be.

    Attributes:
        words: what to pass, for a message.
        fits: whether a value is that.
    """

    words: str
    fits: Callable[[Any], bool]


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or _is_int(value)


def _is_path(value: object) -> bool:
    return isinstance(value, str | Path)


def _is_location(value: object) -> bool:
    return _is_path(value) or isinstance(value, BucketPath)


def _is_stream(value: object) -> bool:
    return (hasattr(value, "read") or hasattr(value, "write")) and not isinstance(value, TextIOBase)


def _is_range(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(map(_is_number, value))


def _is_several(value: object) -> bool:
    # A text is a collection of letters, and never meant as one.
    return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)


def _is_texts(value: object) -> bool:
    return _is_several(value) and all(isinstance(item, str) for item in value)  # type: ignore[attr-defined]


ACCEPTED: dict[str, Accepted] = {
    "str": Accepted("text", lambda value: isinstance(value, str)),
    "bool": Accepted("True or False", lambda value: isinstance(value, bool)),
    "int": Accepted("a whole number", _is_int),
    "float": Accepted("a number", _is_number),
    "str | Path": Accepted("a path", _is_path),
    "str | Location": Accepted("a path or a URL", _is_location),
    "str | Path | BinaryIO": Accepted("a path or a binary stream", lambda value: _is_path(value) or _is_stream(value)),
    "str | int | Path": Accepted("text, a number or a path", lambda value: _is_path(value) or isinstance(value, int)),
    "timedelta": Accepted("a timedelta", lambda value: isinstance(value, timedelta)),
    "Range": Accepted("two numbers, the lowest and the highest", _is_range),
    "Mapping[str, Any]": Accepted("a mapping", lambda value: isinstance(value, Mapping)),
    "Mapping[str, str]": Accepted(
        "a mapping of text to text", lambda value: isinstance(value, Mapping) and _is_texts([*value, *value.values()])
    ),
    "Collection[str]": Accepted("a list of texts", _is_texts),
    "Sequence[str]": Accepted("a list of texts", _is_texts),
    "Sequence[int]": Accepted("a list of whole numbers", lambda value: _is_several(value) and all(map(_is_int, value))),
    "Sequence[ArtifactLike]": Accepted("a list of artifacts", _is_several),
    "Sequence[CheckpointLike]": Accepted("a list of checkpoints", _is_several),
    "StepListener": Accepted(
        "an object with begin and step", lambda value: hasattr(value, "begin") and hasattr(value, "step")
    ),
    "Progress": Accepted(
        "an object with start and advance", lambda value: hasattr(value, "start") and hasattr(value, "advance")
    ),
}
"""By annotation, without ``| None``. Artifacts, references and checkpoints are checked where they are opened."""


def check_arguments(use_case: Callable[P, ResultT]) -> Callable[P, ResultT]:
    """Refuse arguments that are not what the signature of a use case says, with :class:`UsageError`."""
    signature = inspect.signature(use_case)

    @wraps(use_case)
    def call(*args: P.args, **kwargs: P.kwargs) -> ResultT:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return use_case(*args, **kwargs)  # says which argument is missing or unknown
        for name, value in given.items():
            _check(signature.parameters[name], value)
        return use_case(*args, **kwargs)

    return call


def _check(parameter: inspect.Parameter, value: object) -> None:
    annotation = str(parameter.annotation)
    kind = annotation.removesuffix(" | None")
    if kind not in ACCEPTED or (value is None and kind != annotation):
        return
    accepted = ACCEPTED[kind]
    if not accepted.fits(value):
        raise UsageError(f"{parameter.name}: {_shown(value)} was given; pass {accepted.words}")
    if isinstance(value, str | Path) and ("Path" in kind or "Location" in kind) and "\0" in str(value):
        raise UsageError(f"{parameter.name}: a path cannot hold a NUL character")


def _shown(value: object) -> str:
    return "None" if value is None else type(value).__name__
