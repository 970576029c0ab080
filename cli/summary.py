"""The summary of an artifact as text, for ``show`` and for every command that makes one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from maskreg.ref import printable
from maskreg.words import counted, human_bytes, natural, percent, three_digits, times, whole

from .table import Row, folded, paragraph, row, table, width

if TYPE_CHECKING:
    from maskreg.artifact.manifest import FfnRatios, Group, Manifest, Side, Totals
    from maskreg.digest import Digest
    from maskreg.ref import Card, Ref
    from maskreg.workspace.storing import Stored
    from maskreg.workspace.verbs.show import RecordedOverlap

    from .output import Output

GroupT = TypeVar("GroupT")

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
    lines = [
        *paragraph(_sentence(manifest)),
        "",
        *_identity(subject, verbose=verbose),
        *_numbers(manifest),
        *_overlaps(*overlaps, verbose=verbose),
        "",
        *_groups(subject, groups, verbose=verbose),
        *_side("source", manifest.source, verbose=verbose),
        # The target of a baseline is its source.
        *(_side("target", manifest.target, verbose=verbose) if manifest.kind != "baseline" else []),
        *_parts(manifest, present),
    ]
    if card is not None:
        lines += [line for key, value in sorted(card.meta.items()) for line in _row(key, value)]
        lines += _row("description", card.description) if card.description else []
    lines += [line for note in notes for line in _row("note", note)]
    if not verbose and _is_narrow():
        lines += ["", *paragraph(f"Digests are shortened; in full: {_show(subject)}", indent="  ")]
    return "\n".join(map(printable, lines))


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


def _groups(subject: Subject, chosen: Grouping | None, *, verbose: bool) -> list[str]:
    totals = subject.manifest.totals
    lines = []
    for by, groups in [chosen] if chosen else [("role", totals.roles), ("layer", totals.layers)]:
        ordered, left_out = dict(sorted(groups.items(), key=lambda item: -item[1].numel)), list[str]()
        if by != "role":
            ordered, left_out = folded(
                layers_in_order(groups) if by == "layer" else groups,
                lambda group: group.density,
                things=f"{by}s",
                by="density",
                whole=verbose,
                to_see_all=_show(subject) + (f" --by {by}" if chosen else ""),
            )
        lines += [*_bars(f"by {by}", ordered), *left_out, ""]
    return lines


def tell_stored(output: Output, stored: Stored) -> None:
    """Print an artifact that a command has made and stored."""
    if output.printed(stored):
        return
    if output.quiet:
        output.data(str(stored.ref.pinned(stored.digest) if stored.ref else stored.digest))
        return
    subject = Subject(stored.ref, stored.digest, stored.artifact.manifest, stored.card)
    output.data(summary(subject, notes=stored.notes))


def layers_in_order(layers: Mapping[str, GroupT]) -> dict[str, GroupT]:
    """Layers in the order of the model: 2 before 10, tensors outside every layer last."""
    return {label: layers[label] for label in sorted(layers, key=natural)}


def _identity(subject: Subject, *, verbose: bool) -> list[str]:
    ref, digest, manifest, card = subject
    lines = _row("name", str(ref)) if ref else []
    lines += _row("digest", _digest(str(digest), verbose=verbose))
    kind: str = manifest.kind
    if kind == "delta":
        exact = "gives the target's bytes exactly" if manifest.exact else "not exact: the result is not the target"
        kind += f", {exact}"
    lines += _row("kind", kind)
    if manifest.recipe is not None:
        lines += _row("recipe", _recipe(manifest.recipe, verbose=verbose))
    if card is not None:
        fields = [("family", card.family), ("method", card.method), ("license", card.license)]
        lines += [line for label, text in fields if text for line in _row(label, text)]
    lines += [line for parent in manifest.parents for line in _row("parent", _digest(parent, verbose=verbose))]
    return lines


def _recipe(recipe: Mapping[str, object], *, verbose: bool) -> str:
    rest = {key: value for key, value in recipe.items() if key != "kind"}
    shown = {key: value for key, value in rest.items() if verbose or not isinstance(value, dict | list)}
    left_out = len(rest) - len(shown)
    words = [str(recipe.get("kind", "")), *(f"{key} {_entry(value, verbose=verbose)}" for key, value in shown.items())]
    return ", ".join([*words, *([f"and {counted(left_out, 'more entry')}: --verbose"] if left_out else [])])


def _entry(value: object, *, verbose: bool) -> str:
    is_digest = isinstance(value, str) and value.startswith("sha256:") and len(value) == _DIGEST
    return _digest(str(value), verbose=verbose) if is_digest else str(value)


def _numbers(manifest: Manifest) -> list[str]:
    totals = manifest.totals
    verb = "chosen" if manifest.kind == "baseline" else "moved"
    moved = f"{whole(totals.nnz)} of {counted(totals.numel, 'coordinate')} {verb}"
    lines = [*_row("rule", f"{manifest.rule}, on bf16 codes"), *_row("density", f"{percent(totals.density)}, {moved}")]
    # An artifact derived from masks has no target, so neither energy nor differing bits.
    derived = manifest.recipe is not None and manifest.kind in ("baseline", "mask")
    if derived:
        return [*lines, *_ffn(totals.ffn, totals, energy=False)]
    if totals.differing != totals.nnz:
        lines += _row("differing", f"{counted(totals.differing, 'coordinate')} with other bits")
    return [
        *lines,
        *_row("energy", f"{three_digits(totals.energy)}, the sum of squared differences{_without(totals)}"),
        *_nonfinite(totals),
        *_ffn(totals.ffn, totals, energy=True),
    ]


def _without(totals: Totals) -> str:
    return f", without {counted(totals.nonfinite, 'pair')} with NaN or infinity" if totals.nonfinite else ""


def _nonfinite(totals: Totals) -> list[str]:
    if not totals.nan and not totals.inf:
        return []
    return _row("not finite", f"the target has {totals.nan:,} NaN and {totals.inf:,} infinite values")


def _overlaps(rlvr: RecordedOverlap | None, seeds: RecordedOverlap | None, *, verbose: bool) -> list[str]:
    lines = []
    if rlvr is not None:
        lines += _row("RLVR overlap", f"lift {times(rlvr.lift)}, with {_digest(rlvr.against, verbose=verbose)}")
    if seeds is not None:
        seed = f"with another seed of the same recipe, {_digest(seeds.against, verbose=verbose)}"
        lines += _row("ceiling", f"lift {times(seeds.lift)}, {seed}")
    return lines


def _ffn(ffn: FfnRatios, totals: Group, *, energy: bool) -> list[str]:
    table = (
        ("FFN energy", ffn.energy_share, "of all energy", ffn.energy_lift),
        ("FFN density", ffn.density, f"of the FFN, whole {percent(totals.density)}", ffn.density_lift),
        ("FFN share", ffn.mask_share, "of the mask", ffn.mask_lift),
    )
    beside = f"params {percent(ffn.param_share)}, lift"
    return [
        line
        for label, value, of, lift in table
        if energy or label != "FFN energy"
        for line in _row(label, f"{percent(value)} {of}, {beside} {times(lift)}")
    ]


def _side(label: str, side: Side, *, verbose: bool) -> list[str]:
    dtypes = " + ".join(f"{name} {whole(n)}" if len(side.dtypes) > 1 else name for name, n in side.dtypes.items())
    root = _digest(side.root, verbose=verbose)
    lines = _row(label, side.hub or root)
    lines += _row("", root) if side.hub else []
    lines += _row("", f"{counted(side.params, 'param')} in {counted(side.tensors, 'tensor')}, {dtypes}")
    lines += _row("", f"{label}: {side.cast.lower()} cast of a wider checkpoint") if side.cast else []
    return lines


def _parts(manifest: Manifest, present: Sequence[str] | None) -> list[str]:
    lines = []
    for name, part in manifest.parts.items():
        absent = "" if present is None or name in present else ", not present"
        lines += _row(name, f"{human_bytes(part.size)} in {counted(part.objects, 'object')}, {part.codec}{absent}")
    return [*lines, *_row("size", human_bytes(manifest.size))]


def _bars(title: str, groups: Mapping[str, Group]) -> list[str]:
    if not groups:
        return [f"{title}: nothing"]
    widest = max(len(label or "-") for label in groups)
    shares = {label: percent(group.density) for label, group in groups.items()}
    counts = {label: f"{whole(group.nnz)} / {whole(group.numel)}" for label, group in groups.items()}
    wide, column = (max(map(len, texts.values())) for texts in (shares, counts))
    # 2 + label + 2 + density + 2 + bar + 2 + counts
    room = min(width(), _MAX_WIDTH) - widest - wide - column - 8
    if room < 0 and width() < widest + wide + column + 6:
        cells: list[Row] = [(label or "-", shares[label], counts[label]) for label in groups]
        return [title, *table([("", "density", "moved"), *cells])]
    top = max(group.density for group in groups.values()) or 1.0
    return [title] + [
        f"  {label or '-':<{widest}}  {shares[label]:>{wide}}  "
        + (f"{_bar(group.density / top, room)}  " if room >= 4 else "")
        + f"{counts[label]:>{column}}"
        for label, group in groups.items()
    ]


def _bar(share: float, width: int) -> str:
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    if encoding != "utf8":
        return ("#" * round(share * width)).ljust(width)
    full, rest = divmod(round(share * width * 8), 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def _row(label: str, text: str) -> list[str]:
    return row(label, text, _TEXT)
