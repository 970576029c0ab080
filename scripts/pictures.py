"""Draw the pictures of the README and of ``docs/concepts``: ``python -m scripts.pictures``.

Plain SVG with both themes in it: a browser chooses by the color scheme of the page around the picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "docs" / "assets"

STYLE = """
svg { color-scheme: light dark }
* { font-family: system-ui, "DejaVu Sans", Verdana, Arial, sans-serif }
.ground { fill: #ffffff } .box { fill: #f4f7fa; stroke: #b9c4cf } .ours { fill: #0072b2 } .peer { fill: #b8bec5 }
.hot { fill: #d55e00 } .line { stroke: #57606a; fill: none; stroke-width: 1.5 } .faint { stroke: #d8dde3; fill: none }
.blue { stroke: #0072b2; fill: none; stroke-width: 2.5 } .red { stroke: #d55e00; fill: none; stroke-width: 2.5 }
.area { fill: #0072b2; fill-opacity: 0.14 } text { fill: #1f2328; font-size: 14px } .small { font-size: 12.5px }
.soft { fill: #57606a } .bold { font-weight: 600 } .code { font-family: ui-monospace, "DejaVu Sans Mono", monospace }
@media (prefers-color-scheme: dark) {
.ground { fill: #14181d } .box { fill: #1d242c; stroke: #46525f } .ours { fill: #56b4e9 } .peer { fill: #626e7a }
.hot { fill: #e69f00 } .line { stroke: #9aa6b2 } .faint { stroke: #39414b } .blue { stroke: #56b4e9 }
.red { stroke: #e69f00 } .area { fill: #56b4e9 } text { fill: #e6e9ed } .soft { fill: #9aa6b2 } }
""".strip()

SIGMA = 0.02
"""Standard deviation of the weights in the pictures of rounding."""

SIZE = 2e-5
"""Standard deviation of the update in the pictures of rounding."""


def pictures() -> dict[str, str]:
    """Every picture by its name, as SVG."""
    return {
        "overview.svg": overview(),
        "rounding-gaps.svg": gaps(),
        "rounding-flips.svg": flips(),
        "rounding-overlap.svg": overlap(),
    }


def overview() -> str:
    """What happens to an update, and how small it is."""
    parts = [
        _box(16, 20, "source", "the base model"),
        _box(16, 92, "target", "what the run saved"),
        _arrow(156, 45, 206, 70),
        _arrow(156, 117, 206, 92),
        _box(208, 56, "artifact", "mask and delta", hot=True),
        _arrow(348, 81, 398, 81),
        _text(373, 70, "push", "small code", "middle"),
        _box(400, 56, "bucket", "or a folder"),
        _arrow(540, 81, 656, 81),
        _text(562, 70, "pull", "small code", "middle"),
        _box(592, 20, "the same source", "a colleague's"),
        _box(592, 92, "the same target", "bit for bit", hot=True),
        _arrow(662, 71, 662, 90),
        _text(672, 86, "apply", "small code"),
        _text(184, 124, "extract", "small code"),
        _text(16, 180, "Bits per parameter of a 5 M model after on-policy distillation (47 % moved)", "bold"),
    ]
    sizes = (("bf16 checkpoint", 16.0), ("XOR, zstd-3", 3.78), ("lmzip 1.3", 3.08), ("maskreg", 1.40))
    for row, (name, bits) in enumerate(sizes):
        y = 196 + 26 * row
        kind = "ours" if name == "maskreg" else "peer"
        parts.append(_text(16, y + 14, name, "small bold" if kind == "ours" else "small"))
        parts.append(_rect(140, y, 34.0 * bits, 18, kind))
        parts.append(_text(148 + 34.0 * bits, y + 14, f"{bits:g}" if bits > 9 else f"{bits:.2f}", "small"))
    return _svg(748, 310, "How an update travels, and how small it is", parts)


def gaps() -> str:
    """The same update to a small weight and to a large one."""
    parts = []
    rows = ((0.01, "a small weight, 0.01", 74), (0.2, "a large weight, 0.2", 190))
    update = 5e-5
    for weight, label, y in rows:
        gap = _gap(weight)
        code = round(weight / gap) * gap
        scale = 150 if gap < 1e-3 / 4 else 250
        parts.append(_text(16, y - 44, label, "bold"))
        parts.append(_text(16, y - 24, f"bf16 can hold it in steps of {gap:.2g}", "small soft"))
        parts.append(_line(16, y, 732, y))
        middle = 374.0
        for step in range(-3, 4):
            x = middle + step * scale
            if 20 < x < 728:
                parts.append(_line(x, y - 9, x, y + 9))
                if step in (0, 1):
                    parts.append(_text(x, y + 28, f"{code + step * gap:.6f}", "small code", "middle"))
        half = middle + scale / 2
        parts.append(_line(half, y - 14, half, y + 14, "faint"))
        end = middle + update / gap * scale
        parts.append(_line(middle, y - 3, max(end, middle + 9), y - 3, "red"))
        parts.append(f'<circle class="hot" cx="{middle:.1f}" cy="{y - 3:.1f}" r="4"/>')
        moved = end > half
        verdict = "past the middle: the code changes" if moved else "rounds back: nothing to see"
        parts.append(_text(middle + 12, y - 16, f"+{update:.0e}: {verdict}", "small"))
    return _svg(748, 236, "One update, two weights: only the small one changes its bf16 code", parts)


def flips() -> str:
    """How often an update that is the same everywhere changes a code, by magnitude of the weight."""
    left, right, top, bottom = 70.0, 724.0, 24.0, 250.0
    low, high = -13.0, -2.0

    def at(exponent: float) -> float:
        return left + (exponent - low) / (high - low) * (right - left)

    def height(share: float) -> float:
        return bottom - share * (bottom - top)

    grid = [low + (high - low) * i / 880 for i in range(881)]
    mass = [2**e * math.exp(-((2**e / SIGMA) ** 2) / 2) for e in grid]
    parts = [_line(left, height(share), right, height(share), "faint") for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    parts += [_text(left - 8, height(s) + 4, f"{s:.0%}", "small soft", "end") for s in (0.0, 0.5, 1.0)]
    parts += [_text(at(e), bottom + 20, f"{2.0**e:.1g}", "small soft", "middle") for e in range(-12, -1, 2)]
    area = [(at(e), height(0.9 * m / max(mass))) for e, m in zip(grid, mass, strict=True)]
    corners = [(left, bottom), *area, (right, bottom)]
    parts.append(f'<path class="area" d="M{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}z"/>')
    parts.append(_path([(at(e), height(_flips(2**e))) for e in grid], "red"))
    parts.append(_text(at(-8.6), height(0.82), "share whose code changes", "small bold", "start"))
    parts.append(_text(at(-4.4), height(0.55), "where the weights are", "small soft", "start"))
    parts.append(_text((left + right) / 2, bottom + 42, "magnitude of the weight", "small", "middle"))
    title = "An update that is equally large everywhere changes the codes of small weights"
    return _svg(748, 304, title, parts)


def overlap() -> str:
    """What two unrelated updates share, beside uniform random masks."""
    density, both = _two_unrelated()
    rows = (
        ("uniform random masks", 1.0, "peer"),
        ("two unrelated updates", both / density**2, "hot"),
        ("the same mask twice", 1 / density, "ours"),
    )
    parts = [_text(16, 26, f"Two masks, {density:.0%} of the coordinates each: how many do they share?", "bold")]
    for row, (name, lift, kind) in enumerate(rows):
        y = 46 + 34 * row
        parts.append(_text(16, y + 15, name, "small"))
        parts.append(_rect(190, y, 420 * lift * density, 21, kind))
        parts.append(_text(200 + 420 * lift * density, y + 15, f"lift {lift:.2f}", "small bold"))
    return _svg(748, 156, "Rounding alone makes unrelated updates overlap", parts)


def _gap(weight: float) -> float:
    # Between a bf16 number and the next one: 7 bits of mantissa.
    return float(2.0 ** (math.floor(math.log2(weight)) - 7))


def _flips(weight: float) -> float:
    # Share of normal updates that are larger than half a gap.
    return math.erfc(_gap(weight) / 2 / (SIZE * math.sqrt(2)))


def _two_unrelated() -> tuple[float, float]:
    # Over normal weights: the share that flips, and the share that flips in two independent updates.
    points = [4 * SIGMA * (i + 0.5) / 20_000 for i in range(20_000)]
    weight = [math.exp(-((w / SIGMA) ** 2) / 2) for w in points]
    chance = [_flips(w) for w in points]
    total = sum(weight)
    once = sum(m * p for m, p in zip(weight, chance, strict=True)) / total
    return once, sum(m * p * p for m, p in zip(weight, chance, strict=True)) / total


def _box(x: float, y: float, title: str, note: str, *, hot: bool = False) -> str:
    edge = ' style="stroke-width: 2.5"' if hot else ""
    return (
        f'<rect class="box" x="{x}" y="{y}" width="140" height="50" rx="7"{edge}/>'
        + _text(x + 70, y + 21, title, "bold", "middle")
        + _text(x + 70, y + 39, note, "small soft", "middle")
    )


def _arrow(x0: float, y0: float, x1: float, y1: float) -> str:
    return f'<path class="line" marker-end="url(#tip)" d="M{x0},{y0} L{x1},{y1}"/>'


def _rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2"/>'


def _line(x0: float, y0: float, x1: float, y1: float, kind: str = "line") -> str:
    return f'<path class="{kind}" d="M{x0:.1f},{y0:.1f} L{x1:.1f},{y1:.1f}"/>'


def _path(points: Sequence[tuple[float, float]], kind: str) -> str:
    return f'<path class="{kind}" d="M{" L".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    tip = '<path class="line" style="stroke-width: 1.2" d="M1,1 L7,4 L1,7"/>'
    marker = f'<marker id="tip" markerWidth="9" markerHeight="8" refX="7" refY="4" orient="auto">{tip}</marker>'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"',
        f'width="{width}" height="{height}">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f"<defs>{marker}</defs>",
        f'<rect class="ground" width="{width}" height="{height}" rx="6"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, drawn in pictures().items():
        (FOLDER / name).write_text(drawn, encoding="utf-8")
