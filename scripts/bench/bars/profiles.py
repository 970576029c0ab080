"""Where time and bytes go: the sentence beside each bar that was missed."""

from __future__ import annotations

from collections.abc import Mapping

from maskreg.words import counted, listed
from scripts.bench.bars.figures import Pair, Run, Size, Step, Whole
from scripts.bench.bars.kernels import REST
from scripts.bench.bars.parts import DIRECT
from scripts.bench.bars.table import MASKED_STEP_DENSITY, Row, bits, threads_of

SHOWN = 0.04
"""Kernels with a smaller share of the time are not named."""


def shares_of(whole: Whole) -> dict[str, float]:
    """Shares of a command's CPU seconds: each part, what else was measured alone, and the rest."""
    alone = {**whole.parts, **whole.besides}
    shares = {name: sample.least / whole.sample.least for name, sample in alone.items()}
    done = {name: share for name, share in shares.items() if name != "copy out" or DIRECT not in alone}
    return {**shares, REST: 1 - sum(done.values())}


def beside_direct_parts(whole: Whole) -> str:
    """A command beside parts that write as it does; empty where that is the same."""
    if DIRECT not in whole.besides:
        return ""
    parts = {**whole.parts, "copy out": whole.besides[DIRECT]}
    times = whole.sample.least / sum(sample.least for sample in parts.values())
    return f"`{whole.command}` writes past the page cache; beside parts that do so too, it takes {times:.2f} x."


def kernel_shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Shares of a codec's CPU seconds: each kernel that takes long, and the rest."""
    total = sum(seconds.values())
    named = {name: time / total for name, time in seconds.items() if name != REST and time > SHOWN * total}
    return {**named, REST: 1 - sum(named.values())}


def why(run: Run, row: Row) -> str:
    """What takes the time, or the bytes, that a bar is about; empty where nothing was measured."""
    if row.met is None:
        return ""
    return {
        "apply": _command,
        "extract": _command,
        "decode": _codec,
        "encode": _codec,
        "threads": _threads,
        "start": _start,
        "step": _step,
        "install": _install,
        "size": _size,
    }[row.work](run, row)


def _command(run: Run, row: Row) -> str:
    size: Size = run.sizes[-1]
    whole = size.whole(row.work)
    shares = shares_of(whole)
    text = f"Of {whole.sample.least:.2f} CPU seconds at {size.gigabytes:g} GB: {_percent(shares)}."
    starts = [start.second.least for start in run.starts if start.command == row.work]
    return text + (f" Starting the command, {starts[0]:.2f} s, is a part of the rest." if starts else "")


def _codec(run: Run, row: Row) -> str:
    pair = _pair(run, row.about)
    seconds = pair.encode_shares if row.work == "encode" else pair.decode_shares
    return f"Of {row.work}'s CPU seconds on {pair.name}: {_percent(kernel_shares(seconds))}."


def _threads(run: Run, row: Row) -> str:
    (threads,) = [threads for threads in threads_of(run) if threads.work == row.about]
    more = threads.double.least / threads.single.least - 1
    used = threads.double.least / threads.double.least_wall
    return f"On two threads it takes {100 * more:+.0f} % CPU seconds, and uses {used:.2f} cores on average."


def _start(run: Run, _: Row) -> str:
    if run.interpreter is None:
        return ""
    helps = [start.second.least for start in run.starts if start.command == "--help"]
    more = f", `maskreg --help` {helps[0]:.2f}" if helps else ""
    return f"Of the CPU seconds, an interpreter that does nothing takes {run.interpreter.least:.3f}{more}."


def _step(run: Run, _: Row) -> str:
    steps: list[Step] = [step for step in run.steps if step.density <= MASKED_STEP_DENSITY]
    ratios = [
        f"{step.of_fused[0]:.2f} x at p = {step.density:g} on {counted(step.threads, 'thread')}" for step in steps
    ]
    kernels = [
        f"At p = {step.density:g}, a step's CPU seconds: {_percent(kernel_shares(step.shares))}."
        for step in [step for step in steps if step.shares][-1:]
    ]
    return " ".join([f"Time / that of fused AdamW: {', '.join(ratios)}.", *kernels])


def _install(run: Run, _: Row) -> str:
    packages = run.installed.packages if run.installed else {}
    return f"The largest: {listed([f'{name} {size / 1e6:.0f} MB' for name, size in packages.items()], 6)}."


def _size(run: Run, row: Row) -> str:
    pair = _pair(run, row.about)
    coding = pair.coding(run.default_codec)
    size = f"{bits(pair, coding):.3f}" if coding else "–"
    return (
        f"{100 * pair.density:.2f} % moved. {size} b/p stand beside {pair.limits.step:.3f}, the entropy of the ULP "
        f"steps given the exponents, of which {pair.limits.mask:.3f} says which coordinates moved."
    )


def _pair(run: Run, name: str) -> Pair:
    (pair,) = [pair for pair in run.pairs if pair.name == name]
    return pair


def _percent(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())
