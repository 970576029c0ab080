"""One meaning a word: the tables, looking words up, and the page that is generated from them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from maskreg_cli.next_step import next_step

from maskreg.analysis.evidence import GLOBAL, NULLS, figures_of, sums_from_counts
from maskreg.analysis.overlap import OverlapCounts
from maskreg.analysis.verdict import null_label
from maskreg.errors import UsageError
from maskreg.glossary import ENTRIES, FIGURES, GENERAL, explain
from scripts.glossary import KEYS, PLAIN, meaning, page

DOCS = Path(__file__).parent.parent.parent / "docs"


def name(word: str) -> str:
    (entry,) = explain(word)
    return entry.name


def test_no_word_has_two_meanings() -> None:
    words = [word.replace("_", "-") for entry in ENTRIES.values() for word in (entry.name, *entry.aliases)]
    assert [word for word, count in Counter(words).items() if count > 1] == ["step"]
    assert set(GENERAL) & set(FIGURES) == set()
    assert name("step") == "gap"  # the key under which analyses store it
    assert "step" in GENERAL


def test_every_figure_of_an_overlap_has_a_definition() -> None:
    document = figures_of(sums_from_counts(OverlapCounts(100, 40, 30, 20))).to_json()
    shown = {*document, *document["nulls"], *document["mantel_haenszel"], *document["nulls"][GLOBAL]}
    assert {name(key) for key in shown - {"reason"}} <= set(FIGURES)
    for title in (*map(null_label, NULLS), "by tensor and exponent", "observed/expected", "of at most", "Odds ratio"):
        assert explain(title)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (" LIFT ", "lift"),
        ("energy_top_16", "energy_top"),
        ("top 16", "energy_top"),
        ("proj. lift .10", "projection_lift"),
        ("rel. norm", "relative_norm"),
        ("principal_not_low_dssu_0.10@exact", "principal_not_low"),
        ("projection_lift_0.10", "projection_lift"),
        ("nss_of_norm", "nss_of_norm"),
        ("step_rank", "gap"),
        ("step density", "step_density"),
        ("ULP step", "ULP step"),
    ],
)
def test_names_titles_and_beginnings_are_found(word: str, expected: str) -> None:
    assert name(word) == expected


@pytest.mark.parametrize(("wrong", "near"), [("jacard", "jaccard"), ("stable_rang", "stable_rank")])
def test_an_unknown_word_gives_a_near_one(wrong: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"'{wrong}'") as caught:
        explain(wrong, "analyze")
    assert next_step(caught.value) == f"maskreg analyze --explain {near}"


def test_the_page_is_up_to_date() -> None:
    assert (DOCS / "glossary.md").read_text(encoding="utf-8") == page(), "run python -m scripts.glossary"


def test_every_listed_key_means_something() -> None:
    keys = {key for command in KEYS.values() for key in command}
    assert all(meaning(key) for key in keys)
    assert set(PLAIN) <= keys
