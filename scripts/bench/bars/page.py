"""The page of the docs that shows a run, written from its JSON alone, with pictures from the same file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from scripts.bench.bars.figures import Installed, Pair, Run, Sample, load
from scripts.bench.bars.pairs import AVX2
from scripts.bench.bars.profiles import beside_direct_parts, kernel_shares, shares_of, why
from scripts.bench.bars.table import Row, bits, gb_per_s, rows, threads_of, verdict
from scripts.bench.codec import BASE

TITLE = "# Benchmarks"


def write(path: Path) -> None:
    """Write ``NAME.md`` and the pictures beside ``NAME.json``."""
    from scripts.bench.bars import pictures

    run = load(path)
    pictures.draw(run, path.parent, digest_of(path))
    path.with_suffix(".md").write_text(page(run, path.name))


def digest_of(path: Path) -> str:
    """What pictures carry in their metadata, to tell which figures they show."""
    return f"drawn from {path.name}, sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def page(run: Run, name: str) -> str:
    """The whole page.

    Args:
        run: the figures.
        name: of their file, which is beside the page.
    """
    sections = [_head(run, name), _bars(run), _misses(run)]
    if run.sizes:
        sections.append(_commands(run))
    if threads_of(run):
        sections.append(_threads(run))
    if run.pairs:
        sections += [_codec(run), _sizes(run)]
    if run.starts:
        sections.append(_starts(run))
    if run.installed and not run.installed.missing:
        sections.append(_installation(run.installed))
    if run.steps:
        sections.append(_steps(run))
    return "\n".join(line for section in [*sections, _conditions(run)] for line in [*section, ""]).rstrip() + "\n"


def _head(run: Run, name: str) -> Iterator[str]:
    yield TITLE
    yield ""
    yield (
        f"One run measured everything on this page. [{name}]({name}) holds all of its figures; the page, its table "
        "and its pictures are made from that file (`scripts/bench/run page`)."
    )
    yield ""
    yield (
        "What is compared runs in turns, and the best repetition counts; medians are in parentheses. CPU seconds are "
        "user and system time of all threads. A GB is 10^9 bytes of one checkpoint."
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
    table = rows(run)
    yield from _table(
        ("what", "bar", "measured", ""),
        ((row.subject, row.bar, row.measured, _shown(row)) for row in table),
    )


def _shown(row: Row) -> str:
    return f"**{verdict(row)}**" if row.met is False else verdict(row)


def _misses(run: Run) -> Iterator[str]:
    missed = [row for row in rows(run) if row.met is False]
    if not missed:
        yield "Nothing that was measured misses its bar."
        return
    yield from ("### What misses, and where its time goes", "")
    reasons: dict[str, list[Row]] = {}
    for row in missed:
        reasons.setdefault(why(run, row), []).append(row)
    for reason, same in reasons.items():
        misses = "; ".join(f"**{row.subject}**: {row.measured}, {row.bar}" for row in same)
        yield f"- {misses}. {reason}".rstrip()


def _commands(run: Run) -> Iterator[str]:
    yield from ("## Extract and apply", "")
    size = run.sizes[-1]
    yield (
        "The installed commands on generated checkpoints (a distillation that moves "
        f"{100 * size.density:.0f} % of the coordinates), files in the page cache, on two cores. Their parts are done "
        "on the same bytes, by one thread in buffers that it uses again: `copy in` reads from the page cache, `copy "
        "out` writes a new file and syncs it. A bar adds up the parts; what stands below them is work that the "
        "command also does. `rest` is everything else: starting Python, handing blocks to threads, memory that is "
        "touched for the first time."
    )
    yield from ("", "![CPU seconds of extract and apply, of their parts, and of the codec](benchmarks-time.svg)")
    for size in run.sizes:
        yield ""
        lines: list[Sequence[str]] = [("bare loop: read, hash twice, write, sync", *_times(size.loop), "")]
        lines.append(("cp and fsync", *_times(size.copy), ""))
        for whole in size.wholes:
            lines.append((f"**{whole.command}**", *_times(whole.sample), "100 %"))
            alone = {**whole.parts, **whole.besides}
            for part, share in shares_of(whole).items():
                times = _times(alone[part]) if part in alone else ("", "")
                lines.append((f"{whole.command}: {part}", *times, f"{100 * share:.0f} %"))
        yield from _table((f"{size.gigabytes:g} GB", "CPU s", "s", "of the command"), lines)
        yield (
            f"\nThe artifact takes {8 * size.artifact_bytes / size.params:.2f} bits per parameter, its delta "
            f"{8 * size.delta_bytes / size.params:.2f}."
        )
        yield from (f"\n{text}" for whole in size.wholes if (text := beside_direct_parts(whole)))


def _threads(run: Run) -> Iterator[str]:
    yield from ("## Two threads beside one", "")
    yield (
        "Wall time. Extract and apply run in one process, on files in memory where the system offers that, so that "
        "threads are compared and not the disk. Decoding and encoding are those of the generated distillation pair."
    )
    yield ""
    cells = (
        (
            threads.work,
            f"{threads.single.least_wall:.3f}",
            f"{threads.double.least_wall:.3f}",
            f"{threads.gain:.2f} x",
        )
        for threads in threads_of(run)
    )
    yield from _table(("", "s, one thread", "s, two threads", "faster"), cells)


def _codec(run: Run) -> Iterator[str]:
    yield from ("## The codec's speed", "")
    yield (
        f"GB of checkpoint per CPU second on one thread: the codec `{run.default_codec}`, with AVX2 alone, and the "
        f"peers. `of memcpy` is decoding beside copying the checkpoint in memory; `x` is the speed over that of {BASE}."
    )
    yield from ("", "![decoding speed against size](codec-speed.svg)", "")
    for direction in ("decode", "encode"):
        lines = []
        for pair in run.pairs:
            own, avx2, base = (_sample(pair, run, way, direction) for way in ("", AVX2, BASE))
            if own is None:
                continue
            ratio = f"{base.least / own.least:.2f}" if base else "–"
            copy = f"{pair.memcpy.least / own.least:.2f}" if direction == "decode" else ""
            peers = max(
                (gb_per_s(pair, sample), row.codec)
                for row in pair.codings
                if not row.ours and (sample := getattr(row, direction))
            )
            lines.append(
                (
                    pair.name,
                    f"**{gb_per_s(pair, own):.2f}** ({2 * pair.params / own.middle / 1e9:.2f})",
                    f"{gb_per_s(pair, avx2):.2f}" if avx2 else "–",
                    f"{gb_per_s(pair, base):.2f}" if base else "–",
                    ratio,
                    f"{peers[1]}: {peers[0]:.2f}",
                    copy,
                )
            )
        heads = (
            f"{direction}, GB/s",
            run.default_codec,
            "AVX2",
            BASE,
            "x",
            "fastest peer",
            "of memcpy" if copy else "",
        )
        yield from _table(heads, lines)
        yield ""
    yield "Where the codec's CPU seconds go, by compiled kernel (`rest` is small kernels, Python and NumPy):"
    yield ""
    shares = (
        (pair.name, *(_listed(kernel_shares(seconds)) for seconds in (pair.decode_shares, pair.encode_shares)))
        for pair in run.pairs
    )
    yield from _table(("pair", "decode", "encode"), shares)


def _sample(pair: Pair, run: Run, way: str, direction: str) -> Sample | None:
    coding = pair.coding(BASE) if way == BASE else pair.coding(run.default_codec, kernels=way)
    sample: Sample | None = getattr(coding, direction) if coding else None
    return sample


def _sizes(run: Run) -> Iterator[str]:
    yield from ("## Sizes", "")
    yield (
        "Bits per parameter. The entropy of the ULP steps given each weight's exponent in the source bounds a codec "
        "that uses nothing else; one that also uses rows, columns and low rank can be below it. The mask is stored "
        "beside the delta, as packed bits, compressed where that is smaller."
    )
    yield from ("", "![bits per parameter of every codec, with the entropy as a line](codec-size.svg)", "")
    peers = sorted({row.codec for pair in run.pairs for row in pair.codings if not row.ours})
    lines = []
    for pair in run.pairs:
        own = pair.coding(run.default_codec)
        sizes = (f"{bits(pair, row):.3f}" if (row := pair.coding(peer)) else "–" for peer in peers)
        lines.append(
            (
                pair.name,
                f"{pair.params / 1e6:.1f} M",
                f"{100 * pair.density:.2f} %",
                f"{pair.limits.step:.3f}",
                f"**{bits(pair, own):.3f}**" if own else "–",
                *sizes,
                f"{pair.mask_bits:.3f}",
            )
        )
    yield from _table(("pair", "params", "moved", "entropy", run.default_codec, *peers, "mask"), lines)
    yield ""
    for origin in dict.fromkeys(pair.origin for pair in run.pairs):
        names = ", ".join(pair.name for pair in run.pairs if pair.origin == origin)
        yield f"- {names}: {origin}"


def _starts(run: Run) -> Iterator[str]:
    yield from ("## Commands with almost nothing to do", "")
    python = f"{run.interpreter.least:.3f}" if run.interpreter else "–"
    yield f"CPU seconds; the first is in a home without caches. An interpreter that does nothing takes {python}."
    yield ""
    cells = ((f"`{start.command}`", _cpu(start.first), _cpu(start.second)) for start in run.starts)
    yield from _table(("command", "first", "second"), cells)


def _installation(installed: Installed) -> Iterator[str]:
    times = ", ".join(f"{seconds:.2f}" for seconds in installed.runs.cpu)
    yield from ("## A fresh installation", "")
    yield (
        f"An installation without extras fills {installed.bytes / 1e6:.0f} MB. "
        f"The first runs of a small `apply` in it take {times} CPU seconds. The largest packages:"
    )
    yield ""
    largest = list(installed.packages.items())[:10]
    yield from _table(("package", "MB"), ((name, f"{size / 1e6:.1f}") for name, size in largest))


def _steps(run: Run) -> Iterator[str]:
    yield from ("## Masked optimizer steps", "")
    yield (
        f"Milliseconds of a step of AdamW on {run.steps[0].params / 1e6:.0f} M fp32 weights: CPU time on one thread, "
        "and wall time on more."
    )
    yield ""
    lines = (
        (
            f"{step.density:g}",
            str(step.threads),
            *(_ms(step.seconds(sample)) for sample in (step.masked, step.fused, step.foreach)),
            f"{step.of_fused[0]:.2f} ({step.of_fused[1]:.2f})",
        )
        for step in run.steps
    )
    yield from _table(("density", "threads", "masked", "fused", "foreach", "masked / fused"), lines)


def _conditions(run: Run) -> Iterator[str]:
    conditions = run.conditions
    yield from ("## Machine, versions, commit", "")
    state = " with uncommitted changes" if conditions.dirty else ""
    others = "unknown" if conditions.cores_of_others is None else f"{conditions.cores_of_others:.2f}"
    facts = {
        **conditions.machine,
        **conditions.software,
        "commit": (conditions.commit or "unknown") + state,
        "began": conditions.began,
        "took": f"{conditions.seconds / 60:.1f} minutes",
        "load average before, after": f"{conditions.load_before:.2f}, {conditions.load_after:.2f}",
        "cores that other processes used": others,
    }
    yield from _table(("", ""), facts.items())
    yield from ("", "To measure again: `scripts/bench/run bars --help`.")


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for line in lines:
        yield f"| {' | '.join(line)} |"


def _times(sample: Sample) -> tuple[str, str]:
    return f"{sample.least:.2f} ({sample.middle:.2f})", f"{sample.least_wall:.2f} ({sample.middle_wall:.2f})"


def _cpu(sample: Sample) -> str:
    return f"{sample.least:.2f} ({sample.middle:.2f})"


def _ms(seconds: tuple[float, float]) -> str:
    return " ".join(text.format(1e3 * value) for text, value in zip(("{:.1f}", "({:.1f})"), seconds, strict=True))


def _listed(shares: dict[str, float]) -> str:
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())
