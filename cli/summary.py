"""The summary of an artifact as text, for ``show`` and for every command that makes one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from maskreg.words import counted, human_bytes, percent, three_digits, times, whole

from .table import Row, fields, folded, ordered, page, paragraph, table, width

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Group, Manifest, Side
    from maskreg.digest import Digest
    from maskreg.ref import Card, Ref
    from maskreg.workspace.storing import Stored
    from maskreg.workspace.verbs.show import RecordedOverlap

    from .output import Output

_EIGHTHS = " ▏▎▍▌▋▊▉"
_TEXT = 13  # where the text beside a label begins
_DIGEST = 71  # length of a whole digest
_MAX_WIDTH = 100


class Grouping(NamedTuple):
    """Groups whose density is shown.

    Attributes:
        by: what they are: ``role``, ``layer``, ``module`` or ``tensor``.
        groups: by label.
    """

    by: str
    groups: Mapping[str, Group]


class Subject(NamedTuple):
    """The artifact that a summary describes.

    Attributes:
        ref: its name; None when only its digest is known.
        digest: its digest.
        manifest: its manifest.
        card: what people say about it.
    """

    ref: Ref | None
    digest: Digest
    manifest: Manifest
    card: Card | None = None


def summary(
    subject: Subject,
    *,
    present: Sequence[str] | None = None,
    overlaps: tuple[RecordedOverlap | None, RecordedOverlap | None] = (None, None),
    notes: Sequence[str] = (),
    groups: Grouping | None = None,
    verbose: bool = False,
) -> str:
    """The summary of an artifact, in lines that fit the terminal: one sentence, the figures, and where they lie."""
    manifest, card = subject.manifest, subject.card
    above = [*_identity(subject, verbose=verbose), *_numbers(manifest), *_overlaps(*overlaps, verbose=verbose)]
    below = list(_side("source", manifest.source, verbose=verbose))
    # The target of a baseline is its source.
    below += _side("target", manifest.target, verbose=verbose) if manifest.kind != "baseline" else []
    below += [*_parts(manifest, present), ("size", human_bytes(manifest.size))]
    if card is not None:
        below += [*sorted(card.meta.items()), *([("description", card.description)] if card.description else [])]
    below += [("note", note) for note in notes]
    shown = [groups] if groups else [Grouping(by, getattr(manifest.totals, f"{by}s")) for by in ("role", "layer")]
    densities = [_densities(each, _show(subject) + (f" --by {each.by}" if groups else ""), verbose) for each in shown]
    in_full = "" if verbose or not _is_narrow() else f"Digests are shortened; in full: {_show(subject)}"
    blocks = (fields(above, _TEXT), *densities, fields(below, _TEXT), paragraph(in_full, indent="  "))
    return page(paragraph(_sentence(manifest)), *blocks)


def _sentence(manifest: Manifest) -> str:
    totals = manifest.totals
    verb = "chosen" if manifest.kind == "baseline" else "moved"
    share = f"{percent(totals.density)} of {counted(totals.numel, 'coordinate')} {verb}"
    kept = f"the artifact takes {human_bytes(manifest.size)}"
    if manifest.kind != "delta":
        return f"{share}; {kept}."
    exact = "gives the target's bytes exactly" if manifest.exact else "does not give the target exactly"
    return f"{share}; {kept} and {exact}."


def _show(subject: Subject) -> str:
    return f"maskreg show {subject.ref or subject.digest.short} --verbose"


def _is_narrow() -> bool:
    return width() < _TEXT + _DIGEST


def _digest(text: str, *, verbose: bool) -> str:
    """A digest as it is, or its first digits where it would not fit."""
    from maskreg.digest import Digest

    return text if verbose or not _is_narrow() else Digest(text).short


def _densities(grouping: Grouping, see_all: str, verbose: bool) -> list[str]:
    by, groups = grouping
    left_out: list[str] = []
    if by == "role":
        groups = dict(sorted(groups.items(), key=lambda item: -item[1].numel))
    elif not verbose:
        groups, left_out = folded(
            ordered(groups) if by == "layer" else groups,
            lambda group: group.density,
            things=f"{by}s",
            by="density",
            see_all=see_all,
        )
    return [*_bars(f"by {by}", groups), *left_out]


def tell_stored(output: Output, stored: Stored) -> None:
    """Print an artifact that a command has made and stored."""
    if output.printed(stored):
        return
    if output.quiet:
        output.data(str(stored.ref.pinned(stored.digest) if stored.ref else stored.digest))
        return
    subject = Subject(stored.ref, stored.digest, stored.artifact.manifest, stored.card)
    output.data(summary(subject, notes=stored.notes))


def _identity(subject: Subject, *, verbose: bool) -> Iterator[tuple[str, str]]:
    ref, digest, manifest, card = subject
    if ref:
        yield "name", str(ref)
    yield "digest", _digest(str(digest), verbose=verbose)
    exact = "gives the target's bytes exactly" if manifest.exact else "not exact: the result is not the target"
    yield "kind", f"{manifest.kind}, {exact}" if manifest.kind == "delta" else manifest.kind
    if manifest.recipe is not None:
        yield "recipe", _recipe(manifest.recipe, verbose=verbose)
    if card is not None:
        said = [("family", card.family), ("method", card.method), ("license", card.license)]
        yield from (field for field in said if field[1])
    for parent in manifest.parents:
        yield "parent", _digest(parent, verbose=verbose)


def _recipe(recipe: Mapping[str, object], *, verbose: bool) -> str:
    rest = {key: value for key, value in recipe.items() if key != "kind"}
    shown = {key: value for key, value in rest.items() if verbose or not isinstance(value, dict | list)}
    left_out = len(rest) - len(shown)
    words = [str(recipe.get("kind", "")), *(f"{key} {_entry(value, verbose=verbose)}" for key, value in shown.items())]
    return ", ".join([*words, *([f"and {counted(left_out, 'more entry')}: --verbose"] if left_out else [])])


def _entry(value: object, *, verbose: bool) -> str:
    is_digest = isinstance(value, str) and value.startswith("sha256:") and len(value) == _DIGEST
    return _digest(str(value), verbose=verbose) if is_digest else str(value)


def _numbers(manifest: Manifest) -> Iterator[tuple[str, str]]:
    totals = manifest.totals
    verb = "chosen" if manifest.kind == "baseline" else "moved"
    yield "rule", f"{manifest.rule}, on bf16 codes"
    moved = f"{whole(totals.nnz)} of {counted(totals.numel, 'coordinate')} {verb}"
    yield "density", f"{percent(totals.density)}, {moved}"
    # An artifact derived from masks has no target, so neither energy nor differing bits.
    derived = manifest.recipe is not None and manifest.kind in ("baseline", "mask")
    ffn, beside = totals.ffn, f"params {percent(totals.ffn.param_share)}, lift"
    if not derived:
        if totals.differing != totals.nnz:
            yield "differing", f"{counted(totals.differing, 'coordinate')} with other bits"
        without = f", without {counted(totals.nonfinite, 'pair')} with NaN or infinity" if totals.nonfinite else ""
        yield "energy", f"{three_digits(totals.energy)}, the sum of squared differences{without}"
        if totals.nan or totals.inf:
            yield "not finite", f"the target has {totals.nan:,} NaN and {totals.inf:,} infinite values"
        yield "FFN energy", f"{percent(ffn.energy_share)} of all energy, {beside} {times(ffn.energy_lift)}"
    of = f"of the FFN, whole {percent(totals.density)}"
    yield "FFN density", f"{percent(ffn.density)} {of}, {beside} {times(ffn.density_lift)}"
    yield "FFN share", f"{percent(ffn.mask_share)} of the mask, {beside} {times(ffn.mask_lift)}"


def _overlaps(
    rlvr: RecordedOverlap | None, seeds: RecordedOverlap | None, *, verbose: bool
) -> Iterator[tuple[str, str]]:
    if rlvr is not None:
        yield "RLVR overlap", f"lift {times(rlvr.lift)}, with {_digest(rlvr.against, verbose=verbose)}"
    if seeds is not None:
        seed = f"with another seed of the same recipe, {_digest(seeds.against, verbose=verbose)}"
        yield "ceiling", f"lift {times(seeds.lift)}, {seed}"


def _side(label: str, side: Side, *, verbose: bool) -> Iterator[tuple[str, str]]:
    root = _digest(side.root, verbose=verbose)
    yield label, side.hub or root
    if side.hub:
        yield "", root
    dtypes = " + ".join(f"{name} {whole(n)}" if len(side.dtypes) > 1 else name for name, n in side.dtypes.items())
    yield "", f"{counted(side.params, 'param')} in {counted(side.tensors, 'tensor')}, {dtypes}"
    if side.cast:
        yield "", f"{label}: {side.cast.lower()} cast of a wider checkpoint"


def _parts(manifest: Manifest, present: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    for name, part in manifest.parts.items():
        absent = "" if present is None or name in present else ", not present"
        yield name, f"{human_bytes(part.size)} in {counted(part.objects, 'object')}, {part.codec}{absent}"


def _bars(title: str, groups: Mapping[str, Group]) -> list[str]:
    if not groups:
        return [f"{title}: nothing"]
    rows: list[Row] = [
        (f"  {label or '-'}", percent(group.density), f"{whole(group.nnz)} / {whole(group.numel)}")
        for label, group in groups.items()
    ]
    # A bar has what the columns and the gaps between them leave.
    room = min(width(), _MAX_WIDTH) - sum(max(map(len, column)) for column in zip(*rows, strict=True)) - 6
    if room >= 4:
        top = max(group.density for group in groups.values()) or 1.0
        bars = [_bar(group.density / top, room) for group in groups.values()]
        rows = [(label, share, bar, counts) for (label, share, counts), bar in zip(rows, bars, strict=True)]
    return [title, *table(rows)]


def _bar(share: float, width: int) -> str:
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    if encoding != "utf8":
        return ("#" * round(share * width)).ljust(width)
    full, rest = divmod(round(share * width * 8), 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)
