"""Write ``docs/glossary.md``, all words, figures and keys of JSON documents: ``python -m scripts.glossary``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from maskreg.glossary import ENTRIES, OWN, Entry, explain

PLAIN = {
    "action": "What an entry did to its tag, such as moved or removed.",
    "against": "Digest of the other artifact.",
    "at": "When, in ISO 8601 and UTC.",
    "by": "Who recorded it.",
    "by_group": "The group of tensors that the value is of; empty for the whole.",
    "cast": "BF16 when the artifact holds the bf16 cast of a wider checkpoint; else empty.",
    "columns": "The columns of a matrix; see stripes.",
    "deleted": "Whether the tag was deleted by this entry.",
    "detail": "Other figures of the same comparison.",
    "exact": "Whether applying the delta gives the target's bytes.",
    "hub": "Hub id and commit of the checkpoint, when known.",
    "left_out": "What has no such figure.",
    "mantel_haenszel": "Odds ratios within strata, by stratification; see mantel-haenszel.",
    "metric": "Name of the measured figure.",
    "names": "Refs of A and B.",
    "notes": "Caveats about the figures.",
    "immutable": "Whether the tag must never point to another artifact.",
    "origin": "The remote that the tag was pulled from; empty for a local one.",
    "pairs": "Every pair of masks, in the order in which they were named.",
    "reason": "Why a null is undefined; else empty.",
    "recorded": "The measurements that --record stored.",
    "rows": "The rows of a matrix; see stripes.",
    "schema": "Version of the manifest's format.",
    "totals": "Figures over all tensors.",
    "updates": "Directions of every pair of updates, with --updates; see cosine.",
    "whole": "Figures over all compared tensors.",
}
"""Keys that are no word of the glossary, and what is under them."""

RECIPE = "recipe"
"""The one stored key that is an older name of its word: the lineage recipe."""

KEYS = {
    "show": (
        *("ref", "digest", "size", "density", "card", "manifest", "rlvr_overlap", "seed_overlap", "present"),
        *("schema", "kind", "encoder", "rule", "exact", "source", "target", "parents", RECIPE, "totals", "parts"),
        *("root", "hub", "params", "tensors", "dtypes", "cast", "numel", "nnz", "differing", "energy", "nonfinite"),
        *("nan", "inf", "roles", "layers"),
        *("ffn", "param_share", "energy_share", "energy_lift", "density_lift", "mask_share", "mask_lift"),
        *("codec", "objects", "lift", "against", "at"),
    ),
    "log": ("ref", "n", "action", "digest", "deleted", "by", "at", "origin", "immutable"),
    "compare": (
        *("masks", "pairs", "consensus", "intersections", "stripes", "recorded"),
        *("ref", "digest", "kind", "rule", "source"),
        *("names", "digests", "rules", "scope", "whole", "roles", "layers", "modules", "tensors", "verdict", "notes"),
        *("coordinates", "nnz_a", "nnz_b", "nnz_both", "density_a", "density_b", "coverage_a", "coverage_b", "jaccard"),
        *("jaccard_random", "lift", "lift_max", "lift_share", "phi", "phi_max", "odds_ratio", "nulls"),
        *("expected", "ratio", "ratio_interval", "headroom", "headroom_interval", "sd", "standard_error", "deviations"),
        *("chance_of_more", "chance_of_less", "reason", "mantel_haenszel", "mantel_haenszel_intervals"),
        *("outcome", "null", "smallest", "start", "sentence", "p"),
        *("matrix", "correction", "level", "tested", "order", "headrooms", "answers", "nearest", "nearest_headroom"),
        *("alone", "p_corrected", "relation"),
        *("rows", "columns", "count", "full", "empty", "variance", "binomial", "dispersion"),
        *("selection", "updates", "cosine", "cosine_sd", "orthogonal", "energy_a", "energy_b", "channels"),
        *("mlps", "by_mlp", "left_out", "numel", "nonfinite", "orthogonal_by_tensor_a", "orthogonal_by_tensor_b"),
        *("metric", "value", "against", "by_group", "detail", "by", "at"),
    ),
}
"""The keys of ``COMMAND --json``, in the order in which they appear."""

_HEAD = """# Glossary

One meaning a word. Figures are also explained by `maskreg compare --explain FIGURE` and
`maskreg analyze --explain FIGURE`. This page is generated: change `maskreg/glossary.toml`, then run
`python -m scripts.glossary`.
"""


def page() -> str:
    """The page as Markdown."""
    entries = sorted(ENTRIES.values(), key=lambda entry: (entry.name.lower(), entry.name))
    return "\n".join([_HEAD, *map(_paragraph, entries), *_keys()])


def anchor(entry: Entry) -> str:
    """The entry's identifier on the page."""
    return entry.name.replace(" ", "-").lower()


def meaning(key: str) -> Entry | str:
    """What a key of a JSON document means: a word of the glossary, or a text of its own."""
    if key == RECIPE:
        return ENTRIES["lineage recipe"]
    return PLAIN.get(key) or explain(key)[0]


def _paragraph(entry: Entry) -> str:
    also = f" Also: {', '.join(f'`{alias}`' for alias in entry.aliases)}." if entry.aliases else ""
    source = f" *Source: {entry.source}.*" if entry.source != OWN else ""
    return f'<a id="{anchor(entry)}"></a>**{_escaped(entry.name)}**: {_escaped(entry.definition)}{also}{source}\n'


def _keys() -> Iterator[str]:
    yield "## JSON keys\n"
    for command, keys in KEYS.items():
        yield f"`maskreg {command} --json`:\n"
        yield "| key | meaning |\n|---|---|"
        for key in keys:
            word = meaning(key)
            text = (
                word if isinstance(word, str) else f"[{_escaped(word.name)}](#{anchor(word)}): {_escaped(word.brief)}"
            )
            yield f"| `{key}` | {text} |"
        yield ""


def _escaped(text: str) -> str:
    for mark in "\\*_|<[]":
        text = text.replace(mark, f"\\{mark}")
    return text


if __name__ == "__main__":
    (Path(__file__).parent.parent / "docs" / "glossary.md").write_text(page(), encoding="utf-8")
