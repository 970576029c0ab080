"""The pictures of a run: where time goes, beside the bars; size and speed of codecs, as the codec view draws them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from scripts.bench import codec, plots
from scripts.bench.bars.figures import Coding, Pair, Run, Size, Whole
from scripts.bench.bars.kernels import REST
from scripts.bench.bars.parts import DIRECT
from scripts.bench.bars.profiles import kernel_shares
from scripts.bench.bars.table import DECODE_OPD_BAR, ENCODE_OPD_BAR, OPD, PARTS_BAR, bits, gb_per_s
from scripts.bench.codec import BASE

TIME = "benchmarks-time.svg"
CODEC = ("codec-size.svg", "codec-speed.svg")

COLORS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#8B5A2B", "#F0E442")
"""Of parts and kernels in turn (Okabe and Ito), none of them that of a whole."""

BESIDES, OTHER, BAR = ("#9A9A9A", "#C4C4C4"), "#EFEFEF", plots.LIMIT
"""Colors of work beside the parts, of the rest, and of the bar's line."""


def drawn(run: Run) -> tuple[str, ...]:
    """Names of the pictures that :func:`draw` writes."""
    return (*(CODEC if run.pairs else ()), *((TIME,) if run.sizes else ()))


def draw(run: Run, folder: Path, description: str) -> None:
    """Write every picture that the run has figures for.

    Args:
        run: the figures.
        folder: to write into.
        description: for the pictures' metadata.
    """
    if run.pairs:
        plots.draw([_result(pair, run) for pair in run.pairs], folder, description)
    if run.sizes:
        with mpl.rc_context(plots.STYLE):
            plots.save(_times(run), folder / TIME, description)


def _times(run: Run) -> Figure:
    """A panel for each whole: its parts one after another, then the whole, and a line where the bar is."""
    pair = next((pair for pair in run.pairs if pair.name == OPD), None)
    size = run.sizes[-1]
    figure = Figure(figsize=(plots.WIDTH, 5.6 if pair else 3.4), layout="constrained")
    panels = figure.subplots(4 if pair else 2, 1)
    for panel, command in zip(panels, ("apply", "extract"), strict=False):
        _command(panel, size, size.whole(command))
    if pair:
        _codec(panels[2], run, pair, "decode", DECODE_OPD_BAR)
        _codec(panels[3], run, pair, "encode", ENCODE_OPD_BAR)
    line = mpl.lines.Line2D([], [], color=BAR, linestyle="--", label="the bar: at most this")
    figure.legend(handles=[line], loc="outside lower right", frameon=False)
    panels[-1].set_xlabel("CPU seconds for each GB of checkpoint")
    return figure


def _command(panel: Any, size: Size, whole: Whole) -> None:
    per_gb = 1e9 / size.bytes
    parts = {name: per_gb * sample.least for name, sample in whole.parts.items()}
    besides = {name: per_gb * sample.least for name, sample in whole.besides.items() if name != DIRECT}
    total = per_gb * whole.sample.least
    rest = max(0.0, total - sum(parts.values()) - sum(besides.values()))
    _stack(panel, 1, {**parts, **besides, REST: rest}, [*COLORS[: len(parts)], *BESIDES[: len(besides)], OTHER])
    panel.barh([0, 2], [total, per_gb * size.loop.least], color=[plots.DEFAULT, plots.PEER], height=0.72)
    for y, value in ((0, total), (2, per_gb * size.loop.least)):
        _label(panel, y, value)
    panel.axvline(PARTS_BAR * sum(parts.values()), color=BAR, linestyle="--", linewidth=1.4, zorder=3)
    _finish(panel, f"{whole.command}, {size.gigabytes:g} GB", [whole.command, "its parts", "bare loop"])


def _codec(panel: Any, run: Run, pair: Pair, direction: str, least: float) -> None:
    coding, base = pair.coding(run.default_codec), pair.coding(BASE)
    seconds = pair.decode_shares if direction == "decode" else pair.encode_shares
    sample = getattr(coding, direction) if coding else None
    total = 1 / gb_per_s(pair, sample) if sample else 0.0
    shares = kernel_shares(seconds)
    colors = [*(COLORS[i % len(COLORS)] for i in range(len(shares) - 1)), OTHER]
    _stack(panel, 1, {name: share * total for name, share in shares.items()}, colors)
    peer = getattr(base, direction) if base else None
    values = [total, 1 / gb_per_s(pair, peer) if peer else 0.0]
    panel.barh([0, 2], values, color=[plots.DEFAULT, plots.PEER], height=0.72)
    for y, value in zip((0, 2), values, strict=True):
        _label(panel, y, value)
    panel.axvline(1 / least, color=BAR, linestyle="--", linewidth=1.4, zorder=3)
    _finish(panel, f"{direction}, {pair.name}, one thread", [run.default_codec, "its kernels", BASE])


def _stack(panel: Any, y: int, lengths: Mapping[str, float], colors: list[str]) -> None:
    left = 0.0
    for (name, length), color in zip(lengths.items(), colors, strict=True):
        edge = {"edgecolor": plots.GROUND, "linewidth": 0.6}
        panel.barh([y], [length], left=left, color=color, height=0.72, label=name, **edge)
        left += length


def _label(panel: Any, y: int, value: float) -> None:
    panel.annotate(f"{value:.2f}", (value, y), (4, 0), textcoords="offset points", va="center", fontsize=8)


def _finish(panel: Any, title: str, names: list[str]) -> None:
    panel.set_title(title, loc="left", fontsize=10, weight="bold")
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.tick_params(axis="y", length=0)
    panel.margins(x=0.08)
    panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7.5, frameon=False)


def _result(pair: Pair, run: Run) -> codec.Result:
    """A pair as the codec view draws it."""
    plain = [row for row in pair.codings if row.threads == 1 and not row.kernels]
    return codec.Result(
        pair=pair.name,
        what=pair.origin,
        params=pair.params,
        density=pair.density,
        limits=pair.limits,
        default_codec=run.default_codec,
        memcpy_gb_per_s=gb_per_s(pair, pair.memcpy),
        mask_bits_per_param=pair.mask_bits,
        overlap_gb_per_s=0.0,
        rows=tuple(sorted((_row(pair, row) for row in plain), key=lambda row: (bool(row.missing), row.bytes))),
    )


def _row(pair: Pair, row: Coding) -> codec.Row:
    if row.encode is None or row.decode is None:
        return codec.Row(row.codec, row.ours, row.threads, missing=row.missing)
    size = bits(pair, row)
    return codec.Row(
        codec=row.codec,
        ours=row.ours,
        threads=row.threads,
        bytes=row.bytes,
        bits_per_param=size,
        over_limit=100 * (size / pair.limits.step - 1) if pair.limits.step else 0.0,
        encode_gb_per_s=gb_per_s(pair, row.encode),
        decode_gb_per_s=gb_per_s(pair, row.decode),
    )
