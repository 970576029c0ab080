"""The summary of an artifact as text, for ``show`` and for every command that makes one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from maskreg.ref import printable
from maskreg.words import counted, human_bytes, natural

if TYPE_CHECKING:
    from maskreg.artifact.manifest import FfnRatios, Group, Manifest, Side
    from maskreg.digest import Digest
    from maskreg.ref import Card, Ref
    from maskreg.workspace.show import RecordedOverlap
    from maskreg.workspace.storing import Stored

    from .output import Output

GroupT = TypeVar("GroupT")

_EIGHTHS = " ▏▎▍▌▋▊▉"
_LABEL = 12
_MAX_WIDTH = 100


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
) -> str:
    """The summary of an artifact, in lines that fit the terminal.

    Args:
        subject: the artifact.
        present: parts that the registry holds; None when unknown.
        overlaps: recorded overlaps with the reference mask and with another seed; None where there is none.
        notes: remarks by the command that made it.
    """
    manifest, card = subject.manifest, subject.card
    lines = [
        *_identity(subject),
        *_numbers(manifest),
        *_overlaps(*overlaps),
        "",
        *_bars("by role", dict(sorted(manifest.totals.roles.items(), key=lambda r: -r[1].numel))),
        "",
        *_bars("by layer", layers_in_order(manifest.totals.layers)),
        "",
        *_side("source", manifest.source),
        # The target of a baseline is its source.
        *(_side("target", manifest.target) if manifest.kind != "baseline" else []),
        *_parts(manifest, present),
    ]
    if card is not None:
        lines += [_row(key, value) for key, value in sorted(card.meta.items())]
        lines += [_row("description", card.description)] if card.description else []
    lines += [_row("note", note) for note in notes]
    return "\n".join(map(printable, lines))


def tell_stored(output: Output, stored: Stored) -> None:
    """Print an artifact that a command has made and stored."""
    if output.json:
        output.document(stored.to_json())
        return
    subject = Subject(stored.ref, stored.digest, stored.artifact.manifest, stored.card)
    output.data(summary(subject, notes=stored.notes))


def layers_in_order(layers: Mapping[str, GroupT]) -> dict[str, GroupT]:
    """Layers in the order of the model: 2 before 10, tensors outside every layer last."""
    return {label: layers[label] for label in sorted(layers, key=natural)}


def _identity(subject: Subject) -> list[str]:
    ref, digest, manifest, card = subject
    lines = [_row("name", str(ref))] if ref else []
    lines.append(_row("digest", str(digest)))
    kind: str = manifest.kind
    if kind == "delta":
        exact = "gives the target's bytes exactly" if manifest.exact else "not exact: the result is not the target"
        kind += f", {exact}"
    lines.append(_row("kind", kind))
    if manifest.recipe is not None:
        lines.append(_row("recipe", _recipe(manifest.recipe)))
    if card is not None:
        fields = [("family", card.family), ("method", card.method), ("license", card.license)]
        lines += [_row(label, text) for label, text in fields if text]
    lines += [_row("parent", parent) for parent in manifest.parents]
    return lines


def _recipe(recipe: Mapping[str, object]) -> str:
    rest = [f"{key} {value}" for key, value in recipe.items() if key != "kind"]
    return ", ".join([str(recipe.get("kind", "")), *rest])


def _numbers(manifest: Manifest) -> list[str]:
    totals = manifest.totals
    verb = "chosen" if manifest.kind == "baseline" else "moved"
    rows = [
        _row("rule", f"{manifest.rule}, on bf16 codes"),
        _row("density", f"{_ratio(totals.density)}   {totals.nnz:,} of {counted(totals.numel, 'coordinate')} {verb}"),
    ]
    # An artifact derived from masks has no target, so neither energy nor differing bits.
    derived = manifest.recipe is not None and manifest.kind in ("baseline", "mask")
    if derived:
        return [*rows, *_ffn(totals.ffn, totals, energy=False)]
    if totals.differing != totals.nnz:
        rows.append(_row("differing", f"{counted(totals.differing, 'coordinate')} with other bits"))
    return [
        *rows,
        _row("energy", f"{totals.energy:.6g}   sum of squared differences"),
        *_ffn(totals.ffn, totals, energy=True),
    ]


def _overlaps(rlvr: RecordedOverlap | None, seeds: RecordedOverlap | None) -> list[str]:
    lines = []
    if rlvr is not None:
        lines.append(_row("RLVR overlap", f"{rlvr.lift:.4f}   lift, with {rlvr.against}"))
    if seeds is not None:
        lines.append(_row("ceiling", f"{seeds.lift:.4f}   lift, with another seed of the same recipe, {seeds.against}"))
    return lines


def _ffn(ffn: FfnRatios, totals: Group, *, energy: bool) -> list[str]:
    table = (
        ("FFN energy", ffn.energy_share, "of all energy", ffn.energy_lift),
        ("FFN density", ffn.density, f"whole {_ratio(totals.density)}", ffn.density_lift),
        ("FFN share", ffn.mask_share, "of the mask", ffn.mask_lift),
    )
    share = _ratio(ffn.param_share)
    return [
        _row(label, f"{_ratio(value)}   {of:<14} params {share}   lift {_ratio(lift)}")
        for label, value, of, lift in table
        if energy or label != "FFN energy"
    ]


def _side(label: str, side: Side) -> list[str]:
    dtypes = " + ".join(f"{name} {count:,}" if len(side.dtypes) > 1 else name for name, count in side.dtypes.items())
    lines = [
        _row(label, side.hub or side.root),
        _row("", f"{counted(side.params, 'param')} in {counted(side.tensors, 'tensor')}, {dtypes}"),
    ]
    if side.hub:
        lines.insert(1, _row("", side.root))
    if side.cast:
        lines.append(_row("", f"{label}: {side.cast.lower()} cast of a wider checkpoint"))
    return lines


def _parts(manifest: Manifest, present: Sequence[str] | None) -> list[str]:
    lines = []
    for name, part in manifest.parts.items():
        absent = "" if present is None or name in present else ", not present"
        lines.append(_row(name, f"{human_bytes(part.size)} in {counted(part.objects, 'object')}, {part.codec}{absent}"))
    return [*lines, _row("size", human_bytes(manifest.size))]


def _bars(title: str, groups: Mapping[str, Group]) -> list[str]:
    if not groups:
        return [f"{title}: nothing"]
    widest = max(len(label or "-") for label in groups)
    counts = {label: f"{group.nnz:,} / {group.numel:,}" for label, group in groups.items()}
    column = max(len(text) for text in counts.values())
    # 2 + label + 2 + density + 2 + bar + 2 + counts
    room = min(shutil.get_terminal_size((80, 24)).columns, _MAX_WIDTH) - widest - column - 14
    top = max(group.density for group in groups.values()) or 1.0
    return [title] + [
        f"  {label or '-':<{widest}}  {_ratio(group.density):>6}  "
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


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _row(label: str, text: str) -> str:
    return f"{label:<{_LABEL}} {text}"
