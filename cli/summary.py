"""The summary of an artifact as text, for ``show`` and for every command that makes one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from maskreg.digest import Digest
from maskreg.words import counted, human_bytes, percent, three_digits, times, whole

from .table import Column, fields, listing, ordered, page, paragraph, width

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Group, Manifest, Side
    from maskreg.workspace.storing import Stored
    from maskreg.workspace.verbs.show import RecordedOverlap
    from maskreg.workspace.workspace import Named

    from .output import Output

_TEXT = 13  # where the text beside a label begins
_DIGEST = 71  # length of a whole digest


def summary(
    named: Named,
    *,
    present: Sequence[str] | None = None,
    overlaps: tuple[RecordedOverlap | None, RecordedOverlap | None] = (None, None),
    notes: Sequence[str] = (),
    groups: Mapping[str, Mapping[str, Group]] | None = None,
    verbose: bool = False,
) -> str:
    """The summary of an artifact, in lines that fit the terminal: one sentence, the figures, and where they lie.

    Args:
        present: parts that the registry has; None for all.
        overlaps: with the RLVR reference, and with another seed.
        groups: by kind of group, which of them to show; by role and by layer when left out.
        verbose: print whole digests and the whole recipe, and fold no groups.
    """
    manifest, card, see_all = named.manifest, named.card, f"maskreg show {named.name} --verbose"
    above = [*_identity(named, verbose=verbose), *_numbers(manifest), *_overlaps(*overlaps, verbose=verbose)]
    below = list(_side("source", manifest.source, verbose=verbose))
    # The target of a baseline is its source.
    below += _side("target", manifest.target, verbose=verbose) if manifest.kind != "baseline" else []
    below += [*_parts(manifest, present), ("size", human_bytes(manifest.size)), *sorted(card.meta.items())]
    below += [("description", card.description)] if card.description else []
    lines = card.readme.splitlines()
    below += [("readme", counted(len(lines), "line"))] if lines and not verbose else []
    below += [("readme" if not n else "", line) for n, line in enumerate(lines if verbose else [])]
    below += [("note", note) for note in notes]
    shown = groups or {"role": manifest.totals.roles, "layer": manifest.totals.layers}
    densities = [
        _densities(by, those, see_all + (f" --by {by}" if groups else ""), verbose=verbose)
        for by, those in shown.items()
    ]
    in_full = "" if verbose or not _is_narrow() else f"Digests are shortened; in full: {see_all}"
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


def _is_narrow() -> bool:
    return width() < _TEXT + _DIGEST


def _digest(text: str, *, verbose: bool) -> str:
    """A digest as it is, or its first digits where it would not fit."""
    return text if verbose or not _is_narrow() else Digest(text).short


def _densities(by: str, groups: Mapping[str, Group], see_all: str, *, verbose: bool) -> list[str]:
    if not groups:
        return [f"by {by}: nothing"]
    fold = None
    if by == "role":
        groups = dict(sorted(groups.items(), key=lambda item: -item[1].numel))
    else:
        groups, fold = ordered(groups) if by == "layer" else groups, (f"{by}s", "density")
    columns: dict[str, Column] = {
        "density": (percent, attrgetter("density")),
        "coordinates": (whole, attrgetter("nnz")),
        "of": (whole, attrgetter("numel")),
    }
    return listing(f"by {by}", groups, columns, fold=fold, whole=verbose, see_all=see_all)


def tell_stored(output: Output, stored: Stored) -> None:
    """Print an artifact that a command has made and stored."""
    output.answer(stored)
    if output.quiet:
        output.data(str(stored.ref.pinned(stored.digest) if stored.ref else stored.digest))
        return
    output.data(summary(stored, notes=stored.notes))


def _identity(named: Named, *, verbose: bool) -> Iterator[tuple[str, str]]:
    manifest, card = named.manifest, named.card
    if named.ref:
        yield "name", str(named.ref)
    yield "digest", _digest(str(named.digest), verbose=verbose)
    exact = "gives the target's bytes exactly" if manifest.exact else "not exact: the result is not the target"
    yield "kind", f"{manifest.kind}, {exact}" if manifest.kind == "delta" else manifest.kind
    if manifest.recipe is not None:
        yield "recipe", _recipe(manifest.recipe, verbose=verbose)
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
