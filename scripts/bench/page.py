"""What must be reached, judged by ratios within one run; and the docs page of a run, from its JSON alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from maskreg.words import counted
from scripts.bench.codec import AVX2
from scripts.bench.figures import Pair, Run, Sample, Threads, load, ratio

BASE = "XOR planes zstd-3"
"""The peer that ratios refer to."""

OPD, SYNC = "generated opd", "generated sync"

LOOP_BARS = {"apply": 2.5, "extract": 5.0}
COPY_BAR, MEMORY_BAR, THREADS_BAR, FIRST_BAR, SIZE_BAR = 2.5, 1.12, 1.8, 1.5, 1.05
START_BARS = {"list": 25, "show": 25, "apply": 40, "compare": 50}
MEMCPY_BARS = (
    ("decode", OPD, "", 0.3),
    ("decode", SYNC, "", 0.75),
    ("decode", OPD, AVX2, 0.2),
    ("encode", OPD, "", 0.08),
)

Row = tuple[str, str, str, bool | None]
"""What is measured, its bar, what was measured, and whether that is enough; None where it was not measured."""


def rows(run: Run) -> list[Row]:
    """Every bar."""
    return [*_command_rows(run), *_start_rows(run), *_codec_rows(run), *_thread_rows(run)]


def text(run: Run) -> str:
    """The bars for a terminal."""
    table = rows(run)
    width = [max(len(row[column]) for row in table) for column in range(3)]  # type: ignore[arg-type]
    lines = [f"  {a:{width[0]}}  {b:{width[1]}}  {c:{width[2]}}  {_verdict(met)}" for a, b, c, met in table]
    missed, absent = (sum(row[3] is kind for row in table) for kind in (False, None))
    return "\n".join([*lines, f"  {counted(len(table), 'bar')}: {missed} missed, {absent} not measured"])


def _verdict(met: bool | None) -> str:
    return "not measured" if met is None else "met" if met else "MISSED"


def _bar(subject: str, bar: float, values: tuple[float, float] | None, note: str = "", *, least: bool) -> Row:
    """A ratio that must be at most ``bar``, or at least: of the best repetitions, and of the medians."""
    sign = "≥" if least else "≤"
    if values is None:
        return subject, f"{sign} {bar:g} x", "–", None
    met = round(values[0], 2) >= bar if least else round(values[0], 2) <= bar
    return subject, f"{sign} {bar:g} x", f"{values[0]:.2f} x (median {values[1]:.2f}{note})", met


_most, _least = partial(_bar, least=False), partial(_bar, least=True)


def _command_rows(run: Run) -> Iterator[Row]:
    small, large = (run.sizes[0], run.sizes[-1]) if run.sizes else (None, None)
    for command, bar in LOOP_BARS.items():
        subject = f"{command} of {small.gigabytes if small else 1.2:g} GB: CPU seconds / a bare loop's"
        yield _most(subject, bar, ratio(small.whole(command).sample, small.loop) if small else None)
    subject = f"apply of {large.gigabytes if large else 4:g} GB: seconds on 2 cores / cp and fsync's"
    yield _most(subject, COPY_BAR, ratio(large.whole("apply").sample, large.copy, wall=True) if large else None)
    for command in LOOP_BARS:
        peaks = [size.whole(command).peak for size in run.sizes]
        grown = (peaks[-1] / peaks[0],) * 2 if all(peaks) and len(peaks) > 1 else None
        yield _most(f"{command}: peak memory of the largest checkpoint / of the smallest", MEMORY_BAR, grown)


def _start_rows(run: Run) -> Iterator[Row]:
    starts = {start.command: start for start in run.starts}
    # Medians, since a ratio of two minima compares different moments.
    worst = max(run.starts, key=lambda start: median(start.first.cpu) / median(start.second.cpu), default=None)
    values = (median(worst.first.cpu) / median(worst.second.cpu),) * 2 if worst else None
    note = f"; {worst.command}, the worst" if worst else ""
    yield _most("first command in a new home: CPU seconds / the second's", FIRST_BAR, values, note)
    for command, bar in START_BARS.items():
        known = run.interpreter and command in starts
        found = ratio(starts[command].second, run.interpreter) if known and run.interpreter else None
        yield _most(f"{command} with almost nothing to do: CPU seconds / an empty interpreter's", bar, found)


def _codec_rows(run: Run) -> Iterator[Row]:
    pairs = {pair.name: pair for pair in run.pairs}
    for direction, name, kernels, bar in MEMCPY_BARS:
        own = _sample(pairs[name], run.default_codec, direction, kernels) if name in pairs else None
        subject = f"{direction}, one thread{', AVX2 alone' * bool(kernels)}, {name}: speed / memcpy's"
        yield _least(subject, bar, ratio(pairs[name].memcpy, own) if own else None)
    for direction in ("decode", "encode"):
        found = {}
        for pair in run.pairs:
            mine, base = (_sample(pair, codec, direction) for codec in (run.default_codec, BASE))
            if mine and base:
                found[pair.name] = ratio(base, mine)
        least = min(found, key=lambda name: found[name][0], default="")
        note = f"; {least}, the least of {len(found)}"
        yield _least(f"{direction}: speed / {BASE}'s, on every pair", 1, found.get(least), note)
    sizes = {
        pair.name: pair.bits(coding) / pair.limits.step
        for pair in run.pairs
        if (coding := pair.coding(run.default_codec))
    }
    most = max(sizes, key=lambda name: sizes[name], default="")
    note = f"; {most}, the most of {len(sizes)}"
    yield _most("size / the entropy of the steps, on every pair", SIZE_BAR, (sizes[most],) * 2 if most else None, note)


def _thread_rows(run: Run) -> Iterator[Row]:
    gains = {threads.work: ratio(threads.single, threads.double, wall=True) for threads in _threads_of(run)}
    for work in ("decode", "encode", "extract", "apply"):
        yield _least(f"{work}: speed with two threads / with one", THREADS_BAR, gains.get(work))


def _threads_of(run: Run) -> list[Threads]:
    codings = [
        (pair.coding(run.default_codec), pair.coding(run.default_codec, threads=2))
        for pair in run.pairs
        if pair.name == OPD
    ]
    own = [
        Threads(direction, getattr(single, direction), getattr(double, direction))
        for single, double in codings
        for direction in ("decode", "encode")
        if single and double
    ]
    return [*own, *run.threads]


def _sample(pair: Pair, codec: str, direction: str, kernels: str = "") -> Sample | None:
    coding = pair.coding(codec, kernels=kernels)
    sample: Sample | None = getattr(coding, direction) if coding else None
    return sample


def write(path: Path) -> None:
    """Write ``NAME.md`` beside ``NAME.json``."""
    path.with_suffix(".md").write_text(page(load(path), path.name))


def page(run: Run, name: str) -> str:
    """The whole page; ``name`` is the file of the figures beside it."""
    sections = [_head(run, name), _bars(run)]
    if run.sizes:
        sections.append(_commands(run))
    if _threads_of(run):
        sections.append(_threads(run))
    if run.pairs:
        sections += [_codec(run), _sizes(run)]
    if run.starts:
        sections.append(_starts(run))
    return "\n".join(line for section in [*sections, _conditions(run)] for line in [*section, ""]).rstrip() + "\n"


def _head(run: Run, name: str) -> Iterator[str]:
    yield from ("# Benchmarks", "")
    yield (
        f"One run measured everything on this page. [{name}]({name}) holds its figures, and `scripts/bench/run page` "
        "makes the page from that file. What is compared runs in turns, and the best repetition counts; medians are in "
        "parentheses. CPU seconds are user and system time of all threads. A GB is 10^9 bytes of one checkpoint."
    )
    conditions = run.conditions
    if conditions.quick:
        yield from ("", "> **A trial on tiny data.** The figures show only that the benchmark works.")
    if conditions.busy:
        others = conditions.cores_of_others
        used = f", and other processes used {others:.1f} of {conditions.machine['cores']} cores" if others else ""
        yield ""
        yield (
            f"> **The machine was busy**: the load average was {conditions.load_before:.1f} before the run{used}. "
            "Sizes are exact. Speeds and times are worse than on an idle machine, and wall times mean little."
        )


def _bars(run: Run) -> Iterator[str]:
    yield from ("## What must be reached", "")
    yield "Ratios within the run, since rates differ by more than twice between machines of one kind."
    yield ""
    cells = ((a, b, c, f"**{_verdict(met)}**" if met is False else _verdict(met)) for a, b, c, met in rows(run))
    yield from _table(("what", "bar", "measured", ""), cells)


def _commands(run: Run) -> Iterator[str]:
    yield from ("## Extract and apply", "")
    yield (
        "The installed commands on generated checkpoints (a distillation that moves "
        f"{100 * run.sizes[-1].density:.0f} % of the coordinates), files in the page cache, on two cores. The bare "
        "loop reads a checkpoint, hashes it twice, writes and syncs it."
    )
    for size in run.sizes:
        yield ""
        works = [(whole.command, whole.sample, whole.peak) for whole in size.wholes]
        works += [("bare loop", size.loop, 0), ("cp and fsync", size.copy, 0)]
        lines = [
            (name, _cpu(sample), _wall(sample), f"{peak / 1e6:.0f} MB" if peak else "") for name, sample, peak in works
        ]
        yield from _table((f"{size.gigabytes:g} GB", "CPU s", "s", "peak memory"), lines)
        yield (
            f"\nThe artifact takes {8 * size.artifact_bytes / size.params:.2f} bits per parameter, its delta "
            f"{8 * size.delta_bytes / size.params:.2f}."
        )


def _threads(run: Run) -> Iterator[str]:
    yield from ("## Two threads beside one", "")
    yield (
        "Wall time. Extract and apply run in one process, on files in memory where the system offers that, so that "
        "threads are compared and not the disk. Decoding and encoding are on the generated distillation pair."
    )
    yield ""
    cells = (
        (
            entry.work,
            f"{entry.single.least_wall:.3f}",
            f"{entry.double.least_wall:.3f}",
            f"{ratio(entry.single, entry.double, wall=True)[0]:.2f} x",
        )
        for entry in _threads_of(run)
    )
    yield from _table(("", "s, one thread", "s, two threads", "faster"), cells)


def _codec(run: Run) -> Iterator[str]:
    yield from ("## The codec's speed", "")
    yield (
        f"GB of checkpoint per CPU second on one thread: the codec `{run.default_codec}`, with AVX2 alone, and its "
        f"peers. `of memcpy` is the speed beside copying the checkpoint in memory; `x` is that over {BASE}."
    )
    for direction in ("decode", "encode"):
        lines = []
        for pair in run.pairs:
            own, base = (_sample(pair, codec, direction) for codec in (run.default_codec, BASE))
            avx2 = _sample(pair, run.default_codec, direction, AVX2)
            if own is None:
                continue
            peers = [
                (pair.rate(s), row.codec) for row in pair.codings if not row.ours and (s := getattr(row, direction))
            ]
            lines.append(
                (
                    pair.name,
                    f"**{pair.rate(own):.2f}** ({2 * pair.params / median(own.cpu) / 1e9:.2f})",
                    f"{pair.rate(avx2):.2f}" if avx2 else "–",
                    f"{pair.rate(base):.2f}" if base else "–",
                    f"{ratio(base, own)[0]:.2f}" if base else "–",
                    f"{max(peers)[1]}: {max(peers)[0]:.2f}",
                    f"{ratio(pair.memcpy, own)[0]:.2f}",
                )
            )
        yield ""
        yield from _table(
            (f"{direction}, GB/s", run.default_codec, "AVX2", BASE, "x", "fastest peer", "of memcpy"), lines
        )


def _sizes(run: Run) -> Iterator[str]:
    yield from ("## Sizes", "")
    yield (
        "Bits per parameter. The entropy of the ULP steps given each weight's exponent in the source bounds a codec "
        "that uses nothing else; one that also uses rows, columns and low rank can be below it. The mask is stored "
        "beside the delta, as packed bits, compressed where that is smaller."
    )
    yield ""
    peers = sorted({row.codec for pair in run.pairs for row in pair.codings if not row.ours})
    lines = []
    for pair in run.pairs:
        own = pair.coding(run.default_codec)
        sizes = (f"{pair.bits(row):.3f}" if (row := pair.coding(peer)) else "–" for peer in peers)
        facts = (pair.name, f"{pair.params / 1e6:.1f} M", f"{100 * pair.density:.2f} %", f"{pair.limits.step:.3f}")
        lines.append((*facts, f"**{pair.bits(own):.3f}**" if own else "–", *sizes, f"{pair.mask_bits:.3f}"))
    yield from _table(("pair", "params", "moved", "entropy", run.default_codec, *peers, "mask"), lines)
    yield ""
    for origin in dict.fromkeys(pair.origin for pair in run.pairs):
        yield f"- {', '.join(pair.name for pair in run.pairs if pair.origin == origin)}: {origin}"


def _starts(run: Run) -> Iterator[str]:
    yield from ("## Commands with almost nothing to do", "")
    python = f"{run.interpreter.least:.3f}" if run.interpreter else "–"
    yield f"CPU seconds; the first is in a home without caches. An interpreter that does nothing takes {python}."
    yield ""
    cells = ((f"`{start.command}`", _cpu(start.first), _cpu(start.second)) for start in run.starts)
    yield from _table(("command", "first", "second"), cells)


def _conditions(run: Run) -> Iterator[str]:
    conditions = run.conditions
    others = "unknown" if conditions.cores_of_others is None else f"{conditions.cores_of_others:.2f}"
    facts = {
        **conditions.machine,
        **conditions.software,
        "commit": (conditions.commit or "unknown") + (" with uncommitted changes" if conditions.dirty else ""),
        "began": conditions.began,
        "took": f"{conditions.seconds / 60:.1f} minutes",
        "load average before, after": f"{conditions.load_before:.2f}, {conditions.load_after:.2f}",
        "cores that other processes used": others,
    }
    yield from ("## Machine, versions, commit", "")
    yield from _table(("", ""), facts.items())
    yield from ("", "To measure again: `scripts/bench/run --help`.")


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for line in lines:
        yield f"| {' | '.join(line)} |"


def _cpu(sample: Sample) -> str:
    return f"{sample.least:.2f} ({median(sample.cpu):.2f})"


def _wall(sample: Sample) -> str:
    return f"{sample.least_wall:.2f} ({median(sample.wall):.2f})"
