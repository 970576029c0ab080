"""The figures of an analysis and of a trajectory as text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from maskreg.analysis.aggregate import groups_of
from maskreg.digest import Digest
from maskreg.glossary import position, written
from maskreg.ref import printable
from maskreg.words import counted, natural, percent, three_digits, whole

from .table import Row, fields, folded, noted, paragraph, table, width

if TYPE_CHECKING:
    from maskreg.analysis.papers import TableBeside


_COLUMNS = ("mean", "median", "max", "weighted")
_HEADLINES = (
    ("stable rank", "stable_rank"),
    ("top 16", "energy_top_16"),
    ("angle 16", "angle_max_u_16"),
    ("NSS", "nss"),
    ("proj. lift .10", "projection_lift_0.10"),
    ("low", "low_dssu_0.10@exact"),
    ("low", "low_geo_0.30@rel:0.001"),
    ("low", "low_small_0.30@exact"),
    ("principal", "principal_dssu_0.10@exact"),
    ("principal", "principal_geo_0.30@rel:0.001"),
    ("principal", "principal_small_0.30@exact"),
)
_EXTRA = (("spectral norm", "spectral_norm"), ("hill", "hill"))
_ANGLE = "angle_max_u_"
_ENERGY = {"energy_share": "energy share", "energy_lift": "energy lift"}
_TEXT = 13  # where the text beside a label begins

_POINT = (
    ("density", "density"),
    ("step density", "step_density"),
    ("update norm", "update_norm"),
    ("step norm", "step_norm"),
    ("rel. norm", "relative_norm"),
    ("stable rank", "stable_rank"),
    ("similarity", "similarity_to_final"),
)


def geometry(name: str, digest: str, document: Mapping[str, Any], by: str | None, *, verbose: bool = False) -> str:
    """An analysis: one sentence, pooled numbers, the figures of the literature's headlines, and groups."""
    total = document["total"]
    scope = f"{counted(total['tensors'], 'tensor')}, {counted(total['numel'], 'coordinate')}"
    about = (("name", name), ("digest", digest), ("of", document["of"]), ("tensors", scope))
    lines = [
        *paragraph(_sentence(total)),
        "",
        *fields(((label, _shown(text)) for label, text in about), _TEXT),
        "",
        *_pooled(total),
        "",
        *(_figures(total["figures"]) if verbose else _headlines(total["figures"])),
    ]
    if by:
        lines += ["", f"by {by}: mean (null)", *_by_group(groups_of(document, by), by, verbose=verbose)]
    lines += ["", *noted(document["notes"], indent="  ")] if document["notes"] else []
    return "\n".join(map(printable, lines))


def trajectory(document: Mapping[str, Any], *, verbose: bool = False) -> str:
    """A trajectory: one line for each checkpoint; then the same of each group of tensors, if there are any."""
    names = {name for point in document["checkpoints"] for name in point["figures"]}
    chosen = _columns(names)
    titles = (*(title for title, _ in _POINT), *chosen, *document["checkpoints"][0]["concentration"])
    rows: list[Row] = [("checkpoint", *titles), *_points(document, chosen)]
    chance = percent(document["similarity_by_chance"])
    legend = f"similarity: top {document['k']} right directions against the final update's; by chance {chance}"
    lines = [*table(rows), "", *paragraph(legend)]
    shown = ", ".join(f"{title}: {name}" for title, name in chosen.items() if title != name.replace("_", " "))
    more = len(names) - len(chosen)
    rest = f"{counted(more, 'more figure')}: --json" if more else ""
    lines += paragraph("; ".join(text for text in (shown, rest) if text))
    if by := document["by"]:
        ordered = {label: document["groups"][label] for label in sorted(document["groups"], key=natural)}
        kept, left_out = folded(ordered, _end_norm, things=f"{by}s", by="rel. norm at the end", whole=verbose)
        grouped: list[Row] = [(by, "checkpoint", *titles, "by chance")]
        for label, group in kept.items():
            chance = percent(group["similarity_by_chance"])
            grouped += [(label or "-", *point, chance) for point in _points(group, chosen)]
        lines += ["", *table(grouped, right=2, labels=2), *left_out]
    return "\n".join(map(printable, lines))


def _columns(names: Collection[str]) -> dict[str, str]:
    """By title, the figures of a trajectory's table; the angle of most directions, whatever their number."""
    angles = sorted((name for name in names if name.startswith(_ANGLE)), key=_position)
    angle = {f"angle {angles[-1].removeprefix(_ANGLE)}": angles[-1]} if angles else {}
    rest = {title: name for title, name in _chosen(names).items() if not name.startswith(_ANGLE)}
    return {**{title: name for title, name in _EXTRA if name in names}, **angle, **rest}


def _points(group: Mapping[str, Any], chosen: Mapping[str, str]) -> list[Row]:
    return [
        (
            point["checkpoint"],
            *(written(key, point[key]) for _, key in _POINT),
            *(written(name, point["figures"].get(name, {}).get("mean")) for name in chosen.values()),
            *(written(name, share) for name, share in point["concentration"].items()),
        )
        for point in group["checkpoints"]
    ]


def _end_norm(group: Mapping[str, Any]) -> float | None:
    norm: float | None = group["checkpoints"][-1]["relative_norm"]
    return norm


def _sentence(total: Mapping[str, Any]) -> str:
    """What a reader asks first: how much moved, how far, and whether the rank is more than rounding's."""
    sparsity, norm = total["sparsity"]["exact"]["value"], total["relative_norm"]
    sentence = (
        f"{percent(None if sparsity is None else 1 - sparsity)} of {counted(total['numel'], 'coordinate')} moved, by "
        f"{three_digits(norm['value'])} of the norm of the weights (rounding null {three_digits(norm['null'])})"
    )
    rank = total["figures"].get("stable_rank", {})
    if rank.get("matrices"):
        sentence += f"; mean stable rank {written('stable_rank', rank['mean'])} "
        sentence += f"(rounding null {written('stable_rank', rank.get('null_mean'))})"
    return f"{sentence}."


def _shown(text: str) -> str:
    # A whole digest does not fit a narrow terminal; JSON has it.
    is_long = text.startswith("sha256:") and width() < _TEXT + len(text)
    return Digest(text).short if is_long else text


def _pooled(total: Mapping[str, Any]) -> list[str]:
    rows: list[Row] = [("pooled", "value", "null")]
    for rule, sparsity in sorted(total["sparsity"].items(), key=lambda item: item[0] != "exact"):
        rows.append((f"sparsity {rule}", percent(sparsity["value"]), percent(sparsity["null"])))
    norm = total["relative_norm"]
    rows.append(("relative_norm", three_digits(norm["value"]), three_digits(norm["null"])))
    rows += [(name, percent(top["value"]), percent(top["null"])) for name, top in total["concentration"].items()]
    return table(rows)


def _headlines(figures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The mean of the figures that tables by group show, beside their nulls."""
    rows: list[Row] = [("figure", "mean", "null", "chance")]
    for name in _chosen(figures).values():
        figure = figures[name]
        if figure["matrices"]:
            rows.append((name, *(written(name, figure.get(key)) for key in ("mean", "null_mean", "chance"))))
    left_out = len(figures) - len(rows) + 1
    rest = [f"and {counted(left_out, 'more figure')}: --verbose"] if left_out else []
    return [*(table(rows) if len(rows) > 1 else []), *rest]


def _figures(figures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    rows: list[Row] = [("figure: value (null)", *_COLUMNS, "chance")]
    undefined = []
    for name in sorted(figures, key=_position):
        figure = figures[name]
        if figure["matrices"]:
            cells = [_with_null(name, figure, key, f"null_{key}") if key in figure else "-" for key in _COLUMNS]
            rows.append((name, *cells, written(name, figure["chance"])))
        else:
            undefined.append(name)
    legend = paragraph(f"undefined for every matrix: {', '.join(undefined)}", indent="  ") if undefined else []
    return [*table(rows), *legend]


def _chosen(names: Collection[str]) -> dict[str, str]:
    """By title in tables of groups, the figure: several share a title, and the first that was computed gets it."""
    chosen = {title: name for title, name in reversed(_HEADLINES) if name in names}
    return {title: chosen[title] for title in dict(_HEADLINES) if title in chosen}


def _by_group(groups: Mapping[str, Mapping[str, Any]], by: str, *, verbose: bool) -> list[str]:
    chosen = _chosen({name for group in groups.values() for name in group["figures"]})
    rows: list[Row] = [("", "numel", "sparsity", "rel. norm", *_ENERGY.values(), *chosen)]
    ordered = {label: groups[label] for label in sorted(groups, key=natural)}
    kept, left_out = folded(
        ordered, lambda group: group["relative_norm"]["value"], things=f"{by}s", by="rel. norm", whole=verbose
    )
    for label, group in kept.items():
        cells = [_with_null(name, group["figures"].get(name, {}), "mean", "null_mean") for name in chosen.values()]
        norm = _with_null("relative_norm", group["relative_norm"], "value", "null")
        sparsity = _with_null("sparsity", group["sparsity"]["exact"], "value", "null")
        energy = [_with_null(name, group[name], "value", "null") for name in _ENERGY]
        rows.append((label or "-", whole(group["numel"]), sparsity, norm, *energy, *cells))
    legend = [f"{title}: {chosen[title]}" for title in ("low", "principal") if title in chosen]
    return [*table(rows), *legend, *left_out]


def _position(name: str) -> tuple[object, ...]:
    # In the order of the glossary, numbers by size.
    return (position(name), *natural(name))


def _with_null(name: str, figure: Mapping[str, Any], value: str, null: str) -> str:
    texts = [written(name, figure.get(key)) for key in (value, null)]
    return "-" if texts == ["-", "-"] else f"{texts[0]} ({texts[1]})"


_FIGURES = ("v_spread", "v_zero", "m_gradient", "m_update", "step_update")


def momentum(document: Mapping[str, Any], by: str | None, *, verbose: bool = False) -> str:
    """The mean of every figure over the weights, and pooled; then a line for each group."""
    if by == "module":
        raise click.UsageError("the state of an optimizer has no figures by module; use --by role, layer or tensor")
    total = document["total"]
    lines = [f"{counted(total['weights'], 'weight')}, {counted(total['numel'], 'coordinate')}", ""]
    rows: list[Row] = [("figure", "mean", "pooled", "weights")]
    for name in _FIGURES:
        figure = total["figures"][name]
        cells = (written(name, figure["mean"]), written(name, figure["pooled"]), whole(figure["weights"]))
        rows.append((name, *cells))
    lines += table(rows)
    if by is not None:
        groups = document[f"{by}s"]
        ordered = {label: _means(groups[label]) for label in sorted(groups, key=natural)}
        kept, left_out = folded(ordered, lambda row: row["v_spread"], things=f"{by}s", by="v_spread", whole=verbose)
        titles: Row = (f"by {by}", *_FIGURES)
        lines += ["", *table([titles, *((label, *_cells(row)) for label, row in kept.items())]), *left_out]
    lines += ["", *noted(document["notes"], indent="  ")] if document["notes"] else []
    return "\n".join(map(printable, lines))


def _means(group: Mapping[str, Any]) -> Mapping[str, float | None]:
    figures = group.get("figures")
    return group if figures is None else {name: figures[name]["mean"] for name in _FIGURES}


def _cells(row: Mapping[str, float | None]) -> Row:
    return tuple(written(name, row[name]) for name in _FIGURES)


def published(name: str, tables: Sequence[TableBeside], notes: Sequence[str]) -> str:
    """Each table: its paper, what it is about, what it printed, this update, and why figures of it are missing."""
    lines = paragraph(f"this update: {name}; beside it stands what rounding alone makes of noise as strong")
    for each in tables:
        lines += ["", *paragraph(each.cite)]
        lines += [line for about, text in each.terms.items() for line in paragraph(f"{about}: {text}", indent="  ")]
        titles = ("trained", *(column.title for column in each.table.columns))
        lines += ["", *table([titles, *each.texts])]
        missing: dict[str, list[str]] = {}
        for title, reason in each.missing.items():
            missing.setdefault(reason, []).append(title)
        for reason, figures in missing.items():
            lines += paragraph(f"no {', '.join(figures)}: {reason}", indent="  ")
    lines += ["", *noted(notes, indent="  ")] if notes else []
    return "\n".join(map(printable, lines))
