"""The limits of jobs as people write them, ``NAME=VALUE``: how many, how large, how long, and kept until when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from maskreg.errors import ConfigError
from maskreg.service.jobs.base import JobLimits
from maskreg.settings.durations import parse_duration
from maskreg.settings.keys import parse_size

_MOST = 100_000


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MOST:
        raise ValueError(f"{text!r} is not a number from 1 to {_MOST}")
    return int(text)


def _seconds(text: str) -> float:
    return parse_duration(text).total_seconds()


def _time(text: str) -> float:
    if (seconds := _seconds(text)) == 0:
        raise ValueError("no job is done in no time")
    return seconds


def _size(text: str) -> int:
    return parse_size(text, "size")


NAMES: Mapping[str, tuple[str, Callable[[str], float]]] = {
    "running": ("running", _number),
    "running-per-project": ("running_per_project", _number),
    "waiting-per-project": ("queued_per_project", _number),
    "time": ("seconds", _time),
    "attempts": ("attempts", _number),
    "bytes": ("max_bytes", _size),
    "bytes-per-project": ("max_bytes_per_project", _size),
    "keep-outputs": ("keep_outputs_s", _seconds),
    "keep-jobs": ("keep_jobs_s", _seconds),
}
"""The field of each name, and how its value is read."""


def parse_limits(texts: Sequence[str]) -> JobLimits:
    """The limits that follow from ``NAME=VALUE``; what is left out stays as it is.

    Raises:
        ConfigError: an unknown name, or a value that is none.
    """
    limits = JobLimits()
    for text in texts:
        name, _, value = text.partition("=")
        if name not in NAMES:
            raise ConfigError(f"{text!r} is no limit of jobs", hint=f"write NAME=VALUE with one of {', '.join(NAMES)}")
        field, parse = NAMES[name]
        try:
            limits = replace(limits, **{field: parse(value)})  # type: ignore[arg-type]
        except ValueError as error:
            raise ConfigError(f"--job-limit {name}: {error}", hint="as in running=8, time=2h or bytes=50GB") from error
        except ConfigError as error:
            raise ConfigError(f"--job-limit {name}: {value!r} is not a size", hint=error.hint) from error
    return limits
