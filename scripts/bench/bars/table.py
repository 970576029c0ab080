"""The bars: what must be reached, what was measured, and whether that is enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from maskreg.words import counted
from scripts.bench.bars.figures import Coding, Pair, Run, Sample, Threads
from scripts.bench.bars.pairs import AVX2
from scripts.bench.codec import BASE

PARTS_BAR = 1.3
APPLY_LOOP_BAR, EXTRACT_LOOP_BAR = 2.5, 5.0
COPY_BAR = 2.5
FIRST_BAR = 0.3
START_BARS = {"list": 0.35, "show": 0.4, "apply": 0.7, "compare": 0.9}
DECODE_OPD_BAR, DECODE_REAL_BAR, DECODE_SYNC_BAR, DECODE_AVX2_BAR = 3.0, 2.0, 8.0, 2.0
LARGE_TENSOR = 1_000_000
THREADS_BAR = 1.8
ENCODE_OPD_BAR = 0.8
STEP_SIZE_BAR = 0.131
INSTALL_BAR = 250_000_000
MASKED_STEP_BAR, MASKED_STEP_DENSITY = 1.0, 0.48

OPD, SYNC = "generated opd", "generated sync"
GENERATED, REAL, REAL_STEP = "generated", "real", "real step"

Figure = Callable[[Sample], float]


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        subject: what is measured.
        bar: what it must reach, as text.
        measured: figures, as text; why there are none where there are none.
        met: whether it is reached; None if it was not measured.
        work: what a profile of it is about: ``decode``, ``encode``, ``apply``, ``extract``, ``threads``, ``start``,
            ``step``, ``install`` or ``size``.
        about: the pair or the work that the profile is of; empty where there is only one.
    """

    subject: str
    bar: str
    measured: str
    met: bool | None
    work: str
    about: str = ""


def rows(run: Run) -> list[Row]:
    """Every bar, whether or not its figures were measured."""
    return [
        *_command_rows(run),
        *_start_rows(run),
        *_decode_rows(run),
        *_encode_rows(run),
        *_thread_rows(run),
        *_size_rows(run),
        *_other_rows(run),
    ]


def gb_per_s(pair: Pair, sample: Sample) -> float:
    """10^9 bytes of one checkpoint a CPU second, in the best repetition."""
    return 2 * pair.params / sample.least / 1e9


def bits(pair: Pair, coding: Coding) -> float:
    """Bits for each coordinate."""
    return 8 * coding.bytes / pair.params


def text(table: Sequence[Row]) -> str:
    """The table for a terminal."""
    columns = zip(*((row.subject, row.bar, row.measured) for row in table), strict=True)
    width = [max(map(len, column)) for column in columns]
    lines = [
        f"  {row.subject:{width[0]}}  {row.bar:{width[1]}}  {row.measured:{width[2]}}  {verdict(row)}".rstrip()
        for row in table
    ]
    missed = sum(row.met is False for row in table)
    absent = sum(row.met is None for row in table)
    return "\n".join([*lines, f"  {counted(len(table), 'bar')}: {missed} missed, {absent} not measured"])


def verdict(row: Row) -> str:
    """Whether a bar is met, in a word or two."""
    return "not measured" if row.met is None else "met" if row.met else "MISSED"


def _absent(subject: str, bar: str, work: str, reason: str = "") -> Row:
    return Row(subject, bar, reason or "–", None, work)


def _ratio(subject: str, bar: float, work: str, values: tuple[float, float]) -> Row:
    """A ratio that must be at most ``bar``: of the best repetitions, and of the medians."""
    return Row(subject, f"≤ {bar:g} x", f"{values[0]:.2f} x (median {values[1]:.2f})", values[0] <= bar, work)


def _command_rows(run: Run) -> Iterator[Row]:
    small, large = (run.sizes[0], run.sizes[-1]) if run.sizes else (None, None)
    labels = [f"{size.gigabytes:g} GB" if size else "" for size in (small, large)]
    for command in ("apply", "extract"):
        if not large:
            yield _absent(f"{command} / its parts", f"≤ {PARTS_BAR:g} x", command)
            continue
        whole = large.whole(command)
        sums = [sum(map(kind, whole.parts.values())) for kind in (_least, _middle)]
        yield _ratio(
            f"{command} of {labels[1]}: CPU seconds / those of its parts",
            PARTS_BAR,
            command,
            (whole.sample.least / sums[0], whole.sample.middle / sums[1]),
        )
    for command, bar in (("apply", APPLY_LOOP_BAR), ("extract", EXTRACT_LOOP_BAR)):
        if not small:
            yield _absent(f"{command} / bare loop", f"≤ {bar:g} x", command)
            continue
        whole = small.whole(command)
        yield _ratio(
            f"{command} of {labels[0]}: CPU seconds / those of a bare loop",
            bar,
            command,
            (whole.sample.least / small.loop.least, whole.sample.middle / small.loop.middle),
        )
    if not large:
        yield _absent("apply / cp and fsync", f"≤ {COPY_BAR:g} x", "apply")
        return
    sample = large.whole("apply").sample
    yield _ratio(
        f"apply of {labels[1]}: seconds on 2 cores / those of cp and fsync",
        COPY_BAR,
        "apply",
        (sample.least_wall / large.copy.least_wall, sample.middle_wall / large.copy.middle_wall),
    )


def _start_rows(run: Run) -> Iterator[Row]:
    bar, subject = f"≤ {FIRST_BAR:g} s", "first command in a new home: CPU seconds above the second"
    if run.starts:
        # Medians, since a difference of two minima compares different moments.
        worst = max(run.starts, key=lambda start: start.first.middle - start.second.middle)
        above = worst.first.middle - worst.second.middle
        yield Row(subject, bar, f"{above:.2f} s ({worst.command}, the worst)", above <= FIRST_BAR, "start")
    else:
        yield _absent(subject, bar, "start")
    subject = "first command after installing: CPU seconds above the second"
    if run.installed and not run.installed.missing:
        first, *later = run.installed.runs.cpu
        yield Row(subject, bar, f"{first - min(later):.2f} s (apply)", first - min(later) <= FIRST_BAR, "start")
    else:
        yield _absent(subject, bar, "start", run.installed.missing if run.installed else "")
    starts = {start.command: start for start in run.starts}
    for command, most in START_BARS.items():
        subject, bar = f"{command} with almost nothing to do: CPU seconds", f"≤ {most:g} s"
        if command in starts:
            sample = starts[command].second
            yield Row(subject, bar, f"{sample.least:.2f} s (median {sample.middle:.2f})", sample.least <= most, "start")
        else:
            yield _absent(subject, bar, "start")


def _speed(run: Run, subject: str, name: str, least: float, kernels: str = "") -> Row:
    """Decoding a pair of that name."""
    bar = f"≥ {least:g} GB/s"
    pair = next((pair for pair in run.pairs if pair.name == name), None)
    coding = pair.coding(run.default_codec, kernels=kernels) if pair else None
    if not (pair and coding and coding.decode):
        return _absent(subject, bar, "decode")
    best, middle = gb_per_s(pair, coding.decode), 2 * pair.params / coding.decode.middle / 1e9
    return Row(subject, bar, f"{best:.2f} GB/s (median {middle:.2f})", best >= least, "decode", name)


def _decode_rows(run: Run) -> Iterator[Row]:
    yield _speed(run, f"decode, one thread: {OPD}", OPD, DECODE_OPD_BAR)
    real = [pair for pair in run.pairs if pair.kind in (REAL, REAL_STEP) and pair.largest > LARGE_TENSOR]
    for pair in real:
        yield _speed(run, f"decode, one thread: {pair.name}", pair.name, DECODE_REAL_BAR)
    if not real:
        yield _absent("decode, one thread: real pairs with tensors above 1 M", f"≥ {DECODE_REAL_BAR:g} GB/s", "decode")
    yield _speed(run, f"decode, one thread, 1 % moved: {SYNC}", SYNC, DECODE_SYNC_BAR)
    yield _speed(run, f"decode, one thread, AVX2 alone: {OPD}", OPD, DECODE_AVX2_BAR, AVX2)
    yield _faster(run, "decode")


def _encode_rows(run: Run) -> Iterator[Row]:
    subject, bar = f"encode, one thread: {OPD}", f"≥ {ENCODE_OPD_BAR:g} GB/s"
    pair = next((pair for pair in run.pairs if pair.name == OPD), None)
    coding = pair.coding(run.default_codec) if pair else None
    if pair and coding and coding.encode:
        best, middle = gb_per_s(pair, coding.encode), 2 * pair.params / coding.encode.middle / 1e9
        yield Row(subject, bar, f"{best:.2f} GB/s (median {middle:.2f})", best >= ENCODE_OPD_BAR, "encode", OPD)
    else:
        yield _absent(subject, bar, "encode")
    yield _faster(run, "encode")


def _faster(run: Run, direction: str) -> Row:
    """Speed over that of zstd on XOR planes, on the pair where it is least."""
    ratios = {}
    for pair in run.pairs:
        own, base = pair.coding(run.default_codec), pair.coding(BASE)
        if own and base:
            samples = getattr(own, direction), getattr(base, direction)
            ratios[pair.name] = tuple(kind(samples[1]) / kind(samples[0]) for kind in (_least, _middle))
    subject, bar = f"{direction}: speed / {BASE}'s, on every pair", "> 1 x"
    if not ratios:
        return _absent(subject, bar, direction)
    name = min(ratios, key=lambda name: ratios[name][0])
    best, middle = ratios[name]
    slower = sum(ratio[0] <= 1 for ratio in ratios.values())
    at = f"{name}, the least of {len(ratios)}" + (f"; {slower} too slow" if slower else "")
    return Row(subject, bar, f"{best:.2f} x (median {middle:.2f}; {at})", best > 1, direction, name)


def threads_of(run: Run) -> list[Threads]:
    """Everything that was measured on one thread and on two."""
    results = []
    pair = next((pair for pair in run.pairs if pair.name == OPD), None)
    if pair:
        single, double = (pair.coding(run.default_codec, threads=count) for count in (1, 2))
        for direction in ("decode", "encode"):
            if single and double:
                results.append(Threads(direction, getattr(single, direction), getattr(double, direction)))
    return [*results, *run.threads]


def _thread_rows(run: Run) -> Iterator[Row]:
    gains = {threads.work: threads for threads in threads_of(run)}
    for work in ("decode", "encode", "extract", "apply"):
        subject, bar = f"{work}: speed with two threads / with one", f"≥ {THREADS_BAR:g} x"
        if work in gains:
            gain, middle = gains[work].gain, gains[work].middle
            yield Row(subject, bar, f"{gain:.2f} x (median {middle:.2f})", gain >= THREADS_BAR, "threads", work)
        else:
            yield _absent(subject, bar, "threads")


def _size_rows(run: Run) -> Iterator[Row]:
    subject, bar = "size of one step of a real run", f"≤ {STEP_SIZE_BAR:g} b/p"
    pairs = [pair for pair in run.pairs if pair.kind == REAL_STEP]
    for pair in pairs:
        coding = pair.coding(run.default_codec)
        if coding:
            size = bits(pair, coding)
            yield Row(
                f"{subject}: {pair.name}", bar, f"{size:.3f} b/p", round(size, 3) <= STEP_SIZE_BAR, "size", pair.name
            )
    if not pairs:
        yield _absent(subject, bar, "size")


def _other_rows(run: Run) -> Iterator[Row]:
    subject, bar = "an installation, without torch", f"< {INSTALL_BAR / 1e6:.0f} MB"
    if run.installed and not run.installed.missing:
        size = run.installed.bytes
        yield Row(subject, bar, f"{size / 1e6:.0f} MB", size < INSTALL_BAR, "install")
    else:
        yield _absent(subject, bar, "install", run.installed.missing if run.installed else "")
    subject = f"masked step, fp32 weights: time / fused AdamW's, p ≤ {MASKED_STEP_DENSITY:g}"
    steps = [step for step in run.steps if step.density <= MASKED_STEP_DENSITY and step.threads == 1]
    if steps:
        worst = max(steps, key=lambda step: step.of_fused[0])
        best, middle = worst.of_fused
        yield Row(
            subject,
            f"≤ {MASKED_STEP_BAR:.1f} x",
            f"{best:.2f} x (median {middle:.2f}; p = {worst.density:g}, the worst)",
            best <= MASKED_STEP_BAR,
            "step",
        )
    else:
        yield _absent(subject, f"≤ {MASKED_STEP_BAR:.1f} x", "step")


def _least(sample: Sample) -> float:
    return sample.least


def _middle(sample: Sample) -> float:
    return sample.middle
