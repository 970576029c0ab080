"""What a notebook shows: the page's tables and pictures, with nothing that a sanitizer would take away."""

from __future__ import annotations

import sys
from base64 import b64decode

import pytest

from maskreg.extras import install_command
from maskreg.reports.findings import Findings, NamedMask
from maskreg.reports.notebook import artifact_html, overlaps_html
from tests.reports.conftest import EVIL
from tests.reports.test_page import Parsed

KEPT = {"div", "p", "b", "small", "code", "br", "img", "span", "table", "thead", "tbody", "tr", "th", "td"}
"""Tags that notebooks keep in what they do not trust."""


def pictures(parsed: Parsed) -> list[bytes]:
    begin = "data:image/png;base64,"
    assert all(address.startswith(begin) for address in parsed.all("src"))
    return [b64decode(address.removeprefix(begin)) for address in parsed.all("src")]


def test_an_artifact_is_its_card_and_its_heat_map(masks: tuple[NamedMask, NamedMask]) -> None:
    parsed = Parsed(artifact_html(masks[0]))
    assert {tag for tag, _ in parsed.tags} <= KEPT
    texts = "".join(parsed.texts)
    assert str(masks[0].artifact.digest) in texts
    assert f"{masks[0].artifact.manifest.totals.nnz:,} of" in texts
    assert EVIL in texts  # the card's description
    assert [picture[:4] for picture in pictures(parsed)] == [b"\x89PNG"]


def test_a_comparison_is_its_verdicts_figures_and_bars(found: Findings) -> None:
    overlap = found.others[0].overlap
    parsed = Parsed(overlaps_html([overlap] * 4))
    assert {tag for tag, _ in parsed.tags} <= KEPT
    texts = " ".join(" ".join(parsed.texts).split())
    assert texts.count(" ".join(overlap.verdict.sentence.split())) == 4
    assert "exponent-matched random" in texts
    assert len(pictures(parsed)) == 3
    assert "The overlaps of the first 3 pairs are drawn." in texts


def test_without_the_libraries_it_says_how_to_get_them(
    found: Findings, masks: tuple[NamedMask, NamedMask], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for shown, text in [
        (artifact_html(masks[0]), str(masks[0].artifact.digest)),
        (overlaps_html([found.others[0].overlap]), found.others[0].verdict.sentence),
    ]:
        texts = "".join(Parsed(shown).texts)
        assert text in texts
        assert install_command("report") in texts
