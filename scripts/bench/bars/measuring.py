"""One run: every section in turn, on data of one scale."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from maskreg.codec import DEFAULT_CODEC
from scripts.bench import start
from scripts.bench.bars import checkpoints, pairs, starts, steps
from scripts.bench.bars.conditions import Watch
from scripts.bench.bars.figures import BUSY_LOAD, SCHEMA, Run, rounded
from scripts.bench.bars.sections import SECTIONS
from scripts.bench.bars.table import GENERATED, REAL, REAL_STEP, START_BARS
from scripts.bench.pairs import SPECS, CodecPair, generated, given

REAL_STEPS, REAL_RATE = 30, 1e-5
"""Of the distillation of SmolLM2, as in the README."""


@dataclass(frozen=True)
class Scale:
    """How large data are, and how often everything is repeated.

    Attributes:
        hidden: width of generated models for the codec.
        small, large: gigabytes of generated checkpoints for the commands.
        commands: that start with almost nothing to do.
        layers, width: of the model for masked steps.
        enough: bytes; a repetition codes a smaller pair several times.
        rounds: repetitions.
        long_rounds: of commands on generated checkpoints.
    """

    hidden: int
    small: float
    large: float
    commands: Sequence[str]
    layers: int
    width: int
    enough: int
    rounds: int
    long_rounds: int


FULL = Scale(1536, 1.2, 4.0, tuple(start.COMMANDS), 12, 2048, 50_000_000, 5, 3)
QUICK = Scale(384, 0.01, 0.02, tuple(START_BARS), 2, 256, 0, 1, 1)


@dataclass(frozen=True)
class Options:
    """What to measure.

    Attributes:
        sections: names from :data:`SECTIONS`.
        quick: on tiny data.
        given: source and target folders of real pairs.
        one_step: folder with a source and a teacher to distil one step of; None for none.
        smollm: distil SmolLM2 too.
        cache: where pairs that were trained are kept; None for the user's cache folder.
        folder: where to work; None for the system's place for temporary files.
        rounds: repetitions; 0 for those of the scale.
    """

    sections: Sequence[str] = SECTIONS
    quick: bool = False
    given: Sequence[tuple[Path, Path]] = field(default=())
    one_step: Path | None = None
    smollm: bool = False
    cache: Path | None = None
    folder: Path | None = None
    rounds: int = 0

    @property
    def scale(self) -> Scale:
        """Sizes and repetitions."""
        scale = QUICK if self.quick else FULL
        return replace(scale, rounds=self.rounds, long_rounds=self.rounds) if self.rounds else scale


def measure(options: Options) -> Run:
    """Measure the selected sections.

    Raises:
        SystemExit: the disk is too full, or something did not work as it must.
    """
    load, scale = os.getloadavg()[0], options.scale
    if load > BUSY_LOAD:
        say(f"warning: the load average is {load:.1f}; if that is other work, the figures suffer, and the page says so")
    # Before anything is timed: training uses all cores.
    real = list(_real(options))
    watch = Watch(load)
    parts: dict[str, Any] = {}
    if "codec" in options.sections:
        each = _all_pairs(scale, real)
        parts["pairs"] = tuple(pairs.measure(pair, kind, scale.rounds, scale.enough) for pair, kind in each)
    if "commands" in options.sections:
        sizes = []
        for gigabytes in (scale.small, scale.large):
            say(f"extract and apply of {gigabytes:g} GB")
            sizes.append(checkpoints.measure(gigabytes, options.folder, scale.long_rounds))
        parts["sizes"] = tuple(sizes)
    if "threads" in options.sections:
        say(f"extract and apply of {scale.small:g} GB on one thread and on two")
        parts["threads"] = checkpoints.threads(scale.small, options.folder, scale.long_rounds)
    if "start" in options.sections:
        say("commands with almost nothing to do")
        parts["interpreter"], parts["starts"] = starts.measure(scale.commands, options.folder, scale.rounds)
    if "step" in options.sections:
        say("masked steps")
        parts["steps"] = steps.measure(scale.layers, scale.width, (1, 2), scale.rounds)
    if "install" in options.sections and not options.quick:
        say("pip install into a fresh environment")
        parts["installed"] = starts.installed(options.folder)
    conditions = watch.conditions(options.folder or Path(gettempdir()), quick=options.quick)
    return rounded(Run(SCHEMA, conditions, DEFAULT_CODEC, **parts))


def say(text: str) -> None:
    """Print progress on stderr."""
    print(text, file=sys.stderr, flush=True)


Source = tuple[Path, Path, str, str, str]
"""Folders of source and target, name, origin and kind of a real pair."""


def _real(options: Options) -> Iterator[Source]:
    """Real pairs; those that must be trained first are."""
    if "codec" not in options.sections:
        return
    for source, target in options.given:
        yield source, target, f"{source.name} to {target.name}", "two checkpoints on disk", REAL
    if options.one_step:
        before, after = _apart("scripts.bench.one_step", options.one_step, options.cache)
        origin = "5 M model, bf16 weights before and after one step of on-policy distillation, lr 1e-6"
        yield before, after, "one step", origin, REAL_STEP
    if options.smollm:
        before, after = _apart("scripts.bench.real", options.cache, REAL_STEPS, REAL_RATE)
        origin = f"SmolLM2-135M-Instruct, {REAL_STEPS} steps of on-policy distillation, lr {REAL_RATE:g}"
        yield before, after, "SmolLM2 opd", origin, REAL


def _apart(module: str, *args: Any) -> tuple[Path, Path]:
    """What ``pair`` of a module returns, in a process of its own, since it holds torch."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_pair, (module, args))


def _pair(module: str, args: tuple[Any, ...]) -> tuple[Path, Path]:
    import importlib

    pair: tuple[Path, Path] = importlib.import_module(module).pair(*args, say)
    return pair


def _all_pairs(scale: Scale, real: Sequence[Source]) -> Iterator[tuple[CodecPair, str]]:
    """Pairs and their kinds, one in memory at a time."""
    for spec in SPECS:
        say(f"codecs on generated {spec.name}")
        yield generated(spec, scale.hidden), GENERATED
    for source, target, name, origin, kind in real:
        say(f"codecs on {name}")
        yield given(source, target, name, origin), kind
