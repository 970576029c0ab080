"""Pictures of the pages: SVG in the page's own colors, without inline styles, which the pages' policy refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from maskreg.artifact.manifest import Manifest, Side
from maskreg.catalog.query import SearchResult
from maskreg.digest import Digest
from maskreg.ref import Ref
from maskreg.words import counted, percent
from maskreg.workspace.lineage import Ancestor, Lineage

_TALL = 40
"""Height of a sparkline, in units of its own."""

_BAR = 260

_STEPS = 48
"""Maximum number of steps of a sparkline; more layers are averaged."""


def sparkline(densities: Sequence[float]) -> Markup:
    """Density by layer as a row of steps from zero to the highest."""
    lowest, highest = min(densities), max(densities)
    label = f"Density by layer: {percent(lowest)} to {percent(highest)}"
    stride = -(-len(densities) // _STEPS)
    groups = [densities[at : at + stride] for at in range(0, len(densities), stride)]
    means = [sum(group) / len(group) for group in groups]
    top = max(means) or 1.0
    # Whole numbers, a step a unit wide, and one path for line and area: forty of these are on the first page.
    line = "".join(f"V{round(_TALL * (1 - mean / top))}h1" for mean in means)
    return Markup(
        '<svg class="spark" viewBox="0 0 {0} {1}" preserveAspectRatio="none" width="96" height="20" role="img" '
        'aria-label="{2}"><path d="M0 {1}{3}V{1}"/></svg>'
    ).format(len(means), _TALL, label, line)


def bar(share: float, kind: str) -> Markup:
    """A share as a bar, from 0 to 1."""
    width = _rounded(_BAR * min(max(share, 0.0), 1.0))
    return Markup(
        '<svg class="bar" viewBox="0 0 {0} 12" width="{0}" height="12" aria-hidden="true">'
        '<path class="rail" d="M0 6H{0}"/><path class="{1}" d="M0 6H{2}"/></svg>'
    ).format(_BAR, kind, width)


def _rounded(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


_WIDTH, _HEIGHT = 232, 52
"""Of a box, in units of the drawing, which are CSS pixels where there is room."""

_ASIDE, _BELOW = 16, 34
"""Between boxes."""

_TITLE, _NOTE = 27, 34
"""Characters that a box has room for."""


@dataclass(frozen=True)
class Box:
    """A checkpoint or an artifact.

    Attributes:
        address: of its page; empty where there is none for this reader.
    """

    title: str
    note: str
    address: str = ""
    is_self: bool = False


def lineage_picture(
    lineage: Lineage, names: Mapping[Digest, Sequence[SearchResult]], ref: Ref, link: Callable[[Ref], str]
) -> Markup:
    """The lineage of an artifact."""
    boxes: dict[str, Box] = {}
    rows: dict[int, list[str]] = {}
    links = [(str(parent), str(child)) for child, parent in lineage.links]
    children = {child for _, child in links}
    sources: dict[str, None] = {}
    for ancestor in lineage.ancestors:
        key = str(ancestor.digest)
        rows.setdefault(-ancestor.depth, []).append(key)
        boxes[key] = _box(ancestor, names.get(ancestor.digest, ()), link)
        is_known = ancestor.depth == 0 or ancestor.digest in names
        if ancestor.manifest is not None and key not in children and is_known:
            side = ancestor.manifest.source
            boxes[side.root] = _checkpoint(side, "source")
            sources[side.root] = None
            links.append((side.root, key))
    own = lineage.ancestors[0]
    self_key = str(own.digest)
    boxes[self_key] = replace(boxes[self_key], title=str(replace(ref, digest=None)), address="", is_self=True)
    if own.manifest is not None and own.manifest.kind == "delta":
        side = own.manifest.target
        rows[1] = [f"target {side.root}"]
        boxes[f"target {side.root}"] = _checkpoint(side, "target")
        links.append((self_key, f"target {side.root}"))
    ordered = [rows[depth] for depth in sorted(rows)]
    return drawn([list(sources), *ordered] if sources else ordered, boxes, links)


def _box(ancestor: Ancestor, names: Sequence[SearchResult], link: Callable[[Ref], str]) -> Box:
    manifest = ancestor.manifest
    if names:
        return Box(str(names[0].ref), _kind(manifest), link(names[0].ref))
    if ancestor.depth == 0:
        return Box(ancestor.digest.short, _kind(manifest))
    return Box(ancestor.digest.short, "no name that you can read" if manifest else "not on this server")


def _kind(manifest: Manifest | None) -> str:
    if manifest is None:
        return ""
    kind = str((manifest.recipe or {}).get("kind", manifest.kind))
    return f"{kind}, {percent(manifest.totals.density)}" if manifest.totals.numel else kind


def _checkpoint(side: Side, word: str) -> Box:
    return Box(side.hub or Digest(side.root).short, f"{word}, {counted(side.params, 'param')}")


def drawn(rows: Sequence[Sequence[str]], boxes: Mapping[str, Box], links: Sequence[tuple[str, str]]) -> Markup:
    """Boxes in rows, and an arrow for each link."""
    widest = max(len(row) for row in rows)
    width = widest * (_WIDTH + _ASIDE) + _ASIDE
    height = len(rows) * (_HEIGHT + _BELOW) - _BELOW + 4
    corners: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        left = (width - len(row) * (_WIDTH + _ASIDE) + _ASIDE) / 2
        for at, key in enumerate(row):
            corners[key] = left + at * (_WIDTH + _ASIDE), 2 + number * (_HEIGHT + _BELOW)
    arrows = Markup("").join(_arrow(corners[upper], corners[lower]) for upper, lower in links)
    shapes = Markup("").join(_shape(boxes[key], *corner) for key, corner in corners.items())
    return Markup(
        '<svg class="lineage" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="group" aria-label="Lineage">'
        '<defs><marker id="tip" markerWidth="9" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M1,1L8,4L1,7z"/></marker></defs>{2}{3}</svg>'
    ).format(width, height, arrows, shapes)


def _arrow(upper: tuple[float, float], lower: tuple[float, float]) -> Markup:
    start, end = upper[0] + _WIDTH / 2, lower[0] + _WIDTH / 2
    top, bottom = upper[1] + _HEIGHT, lower[1] - 2
    bend = (top + bottom) / 2
    return Markup('<path marker-end="url(#tip)" d="M{0} {1}C{0} {4} {2} {4} {2} {3}"/>').format(
        start, top, end, bottom, bend
    )


def _shape(box: Box, left: float, top: float) -> Markup:
    shape = Markup(
        '<g{0}><rect x="{1}" y="{2}" width="{3}" height="{4}" rx="6"/>'
        '<text x="{5}" y="{6}">{7}<title>{8}</title></text><text class="small" x="{5}" y="{9}">{10}</text></g>'
    ).format(
        Markup(' class="self"') if box.is_self else "",
        left, top, _WIDTH, _HEIGHT, left + 12, top + 22, _cut(box.title, _TITLE), box.title, top + 41,
        _cut(box.note, _NOTE),
    )  # fmt: skip
    return Markup('<a href="{}">{}</a>').format(box.address, shape) if box.address else shape


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1]}…"
