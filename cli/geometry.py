"""The figures of an analysis and of a trajectory as text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from maskreg.analysis.aggregate import groups_of
from maskreg.digest import Digest
from maskreg.glossary import position, written
from maskreg.words import counted, natural, percent, three_digits, whole

from .table import Column, Row, fields, folded, listing, noted, ordered, page, paragraph, table, width

if TYPE_CHECKING:
    from maskreg.analysis.papers import TableBeside


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
_MEANS = (("mean", "mean"), ("null", "null_mean"), ("chance", "chance"))
_SPREAD = [pair for key in ("median", "max", "weighted") for pair in ((key, key), ("null", f"null_{key}"))]


def geometry(name: str, digest: str, document: Mapping[str, Any], by: str | None, *, verbose: bool = False) -> str:
    """An analysis: one sentence, pooled numbers, the figures of the literature's headlines, and groups."""
    total = document["total"]
    scope = f"{counted(total['tensors'], 'tensor')}, {counted(total['numel'], 'coordinate')}"
    about = (("name", name), ("digest", digest), ("of", document["of"]), ("tensors", scope))
    # What a reader asks first: how much moved, how far, and whether the rank is more than rounding's.
    sparsity, norm = total["sparsity"]["exact"]["value"], total["relative_norm"]
    sentence = (
        f"{percent(None if sparsity is None else 1 - sparsity)} of {counted(total['numel'], 'coordinate')} moved, by "
        f"{three_digits(norm['value'])} of the norm of the weights (rounding null {three_digits(norm['null'])})"
    )
    rank = total["figures"].get("stable_rank", {})
    if rank.get("matrices"):
        sentence += f"; mean stable rank {written('stable_rank', rank['mean'])} "
        sentence += f"(rounding null {written('stable_rank', rank.get('null_mean'))})"
    blocks = [
        paragraph(f"{sentence}."),
        fields(((label, _shown(text)) for label, text in about), _TEXT),
        _pooled(total),
        _figures(total["figures"], verbose=verbose),
    ]
    if by:
        blocks.append([f"by {by}: mean (null)", *_by_group(groups_of(document, by), by, verbose=verbose)])
    return page(*blocks, noted(document["notes"], indent="  "))


def trajectory(document: Mapping[str, Any], *, verbose: bool = False) -> str:
    """A trajectory: one line for each checkpoint; then the same of each group of tensors, if there are any."""
    names = {name for point in document["checkpoints"] for name in point["figures"]}
    chosen = _columns(names)
    titles = (*(title for title, _ in _POINT), *chosen, *document["checkpoints"][0]["concentration"])
    chance = percent(document["similarity_by_chance"])
    legend = f"similarity: top {document['k']} right directions against the final update's; by chance {chance}"
    shown = ", ".join(f"{title}: {name}" for title, name in chosen.items() if title != name.replace("_", " "))
    more = len(names) - len(chosen)
    rest = f"{counted(more, 'more figure')}: --json" if more else ""
    below = [*paragraph(legend), *paragraph("; ".join(text for text in (shown, rest) if text))]
    blocks = [table([("checkpoint", *titles), *_points(document, chosen)]), below]
    if by := document["by"]:
        groups, left_out = ordered(document["groups"]), list[str]()
        if not verbose:
            groups, left_out = folded(
                groups,
                lambda group: group["checkpoints"][-1]["relative_norm"],
                things=f"{by}s",
                by="rel. norm at the end",
            )
        grouped: list[Row] = [(by, "checkpoint", *titles, "by chance")]
        for label, group in groups.items():
            chance = percent(group["similarity_by_chance"])
            grouped += [(label or "-", *point, chance) for point in _points(group, chosen)]
        blocks.append([*table(grouped, right=2, labels=2), *left_out])
    return page(*blocks)


def _columns(names: Collection[str]) -> dict[str, str]:
    """By title, the figures of a trajectory's table; the angle of most directions, however many they are."""
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


def _shown(text: str) -> str:
    # A whole digest does not fit a narrow terminal; JSON has it.
    is_long = text.startswith("sha256:") and width() < _TEXT + len(text)
    return Digest(text).short if is_long else text


def _pooled(total: Mapping[str, Any]) -> list[str]:
    rules = sorted(total["sparsity"], key=lambda rule: rule != "exact")
    pooled = {f"sparsity {rule}": ("sparsity", total["sparsity"][rule]) for rule in rules}
    pooled["relative_norm"] = ("relative_norm", total["relative_norm"])
    pooled |= {name: (name, share) for name, share in total["concentration"].items()}
    rows = [(label, *(written(name, pair[key]) for key in ("value", "null"))) for label, (name, pair) in pooled.items()]
    return table([("pooled", "value", "null"), *rows])


def _figures(figures: Mapping[str, Mapping[str, Any]], *, verbose: bool) -> list[str]:
    """Each figure beside its null; without ``verbose``, the means that tables by group show."""
    names = sorted(figures, key=_position) if verbose else _chosen(figures).values()
    defined = [name for name in names if figures[name]["matrices"]]
    keys = [*_MEANS, *(_SPREAD if verbose else ())]
    rows: list[Row] = [(name, *(written(name, figures[name].get(key)) for _, key in keys)) for name in defined]
    lines = table([("figure", *(title for title, _ in keys)), *rows]) if rows else []
    if not verbose:
        left_out = len(figures) - len(rows)
        return [*lines, *([f"and {counted(left_out, 'more figure')}: --verbose"] if left_out else [])]
    undefined = [name for name in names if name not in defined]
    return lines + (paragraph(f"undefined for every matrix: {', '.join(undefined)}", indent="  ") if undefined else [])


def _chosen(names: Collection[str]) -> dict[str, str]:
    """By title in tables of groups, the figure: several share a title, and the first that was computed gets it."""
    chosen = {title: name for title, name in reversed(_HEADLINES) if name in names}
    return {title: chosen[title] for title in dict(_HEADLINES) if title in chosen}


def _by_group(groups: Mapping[str, Mapping[str, Any]], by: str, *, verbose: bool) -> list[str]:
    chosen = _chosen({name for group in groups.values() for name in group["figures"]})
    columns: dict[str, Column] = {
        "numel": (whole, lambda group: group["numel"]),
        "sparsity": (_with_null, lambda group: ("sparsity", group["sparsity"]["exact"])),
        "rel. norm": (_with_null, partial(_of_group, "relative_norm")),
        "energy share": (_with_null, partial(_of_group, "energy_share")),
        "energy lift": (_with_null, partial(_of_group, "energy_lift")),
    }
    columns |= {title: (_with_null, partial(_of_matrices, name)) for title, name in chosen.items()}
    left_out: list[str] = []
    shown = ordered(groups)
    if not verbose:
        shown, left_out = folded(shown, lambda group: group["relative_norm"]["value"], things=f"{by}s", by="rel. norm")
    legend = [f"{title}: {chosen[title]}" for title in ("low", "principal") if title in chosen]
    return [*listing("", shown, columns), *legend, *left_out]


def _position(name: str) -> tuple[object, ...]:
    # In the order of the glossary, numbers by size.
    return (position(name), *natural(name))


def _of_group(name: str, group: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    return name, group[name]


def _of_matrices(name: str, group: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    return name, group["figures"].get(name, {})


def _with_null(named: tuple[str, Mapping[str, Any]]) -> str:
    name, figure = named
    texts = [
        written(name, figure.get(key, figure.get(of_matrices)))
        for key, of_matrices in (("value", "mean"), ("null", "null_mean"))
    ]
    return "-" if texts == ["-", "-"] else f"{texts[0]} ({texts[1]})"


def published(name: str, tables: Sequence[TableBeside], notes: Sequence[str]) -> str:
    """Each table: its paper, what it is about, what it printed, this update, and why figures of it are missing."""
    blocks = [paragraph(f"this update: {name}; beside it stands what rounding alone makes of noise as strong")]
    for each in tables:
        blocks.append(paragraph(each.cite))
        blocks[-1] += [
            line for about, text in each.terms.items() for line in paragraph(f"{about}: {text}", indent="  ")
        ]
        below = table([("trained", *(column.title for column in each.table.columns)), *each.texts])
        missing: dict[str, list[str]] = {}
        for title, reason in each.missing.items():
            missing.setdefault(reason, []).append(title)
        for reason, figures in missing.items():
            below += paragraph(f"no {', '.join(figures)}: {reason}", indent="  ")
        blocks.append(below)
    return page(*blocks, noted(notes, indent="  "))
