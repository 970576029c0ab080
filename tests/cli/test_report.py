"""The page, from names to a file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from maskreg.digest import Digest
from maskreg.extras import install_command
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.settings import Settings
from tests.checkpoints import make_checkpoint, moved
from tests.cli.conftest import Run, tensors
from tests.demo import DEMO

REF = "toy-opd:v1"
EVIL = "<img src=x onerror=alert(1)>\x1b[2J"


@pytest.fixture
def other(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> str:
    """A second mask of the same source."""
    target = {n: moved(t, 0.5, 50 + i) for i, (n, t) in enumerate(tensors().items())}
    run("extract", pair[0], make_checkpoint(tmp_path / "other", target), "--name", "other", "--mask-only")
    return "other"


def test_from_two_names_to_a_page(run: Run, other: str, tmp_path: Path) -> None:
    page, plots = tmp_path / "report.html", tmp_path / "plots"
    done = run("report", REF, "--against", other, "-o", page, "--plots", plots, "--json").json
    assert done["path"] == str(page)
    assert (done["ref"], done["answer"]) == (REF, "open")
    assert done["against"][0]["ref"] == other
    assert sorted(done["plots"]) == sorted(str(path) for path in plots.iterdir())
    assert len(done["plots"]) == 12
    text = page.read_text()
    # The source was found where extract had seen it.
    assert "rounding alone in A" in text
    assert "was not available" not in text
    said = run("report", REF, "-o", tmp_path / "alone.html")
    assert said.out == f"{tmp_path / 'alone.html'}\n"
    assert "One mask alone cannot tell" in said.err


def test_the_tensors_of_a_page_can_be_chosen(run: Run, other: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    target = {n: moved(t, 0.3, 80 + i) for i, (n, t) in enumerate(tensors().items())}
    run("extract", pair[0], make_checkpoint(tmp_path / "third", target), "--name", "third", "--mask-only")
    words = ("report", REF, "--against", other, "--against", "third", "--role", "q_proj", "--layers", "0")
    done = run(*words, "-o", tmp_path / "report.html", "--json").json
    assert done["selection"] == {"roles": ["q_proj"], "layers": "0"}
    (consensus,) = done["consensus"]
    assert consensus["tensor"] == "model.layers.0.self_attn.q_proj.weight"
    assert (consensus["block"], len(consensus["ratios"])) == ([1, 1], 16)
    compared = run("compare", REF, other, "third", "--role", "q_proj", "--layers", "0", "--json").json
    assert done["against"][0]["whole"] == compared["pairs"][0]["whole"]
    assert consensus["consensus"] == compared["consensus"]
    page = (tmp_path / "report.html").read_text()
    assert "Only what <code>--role q_proj --layers 0</code> selects is counted" in page
    assert "rounding alone in A" in page
    assert "--role q_proj" in run(*words, "--role", "qproj", "-o", tmp_path / "no.html", status=2).err
    assert not (tmp_path / "no.html").exists()


def test_a_page_that_exists_stays_unless_forced(run: Run, artifact: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("mine")
    assert "--force" in run("report", REF, "-o", page, status=73).err
    assert page.read_text() == "mine"
    run("report", REF, "-o", page, "--force")
    assert page.read_text().startswith("<!doctype html>")


def test_without_the_source_it_says_so(run: Run, other: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    pair[0].rename(tmp_path / "moved")
    page = tmp_path / "report.html"
    told = run("report", REF, "--against", other, "-o", page)
    assert "was not found" in told.err
    assert "was not available" in page.read_text()
    run("report", REF, "--source", tmp_path / "moved", "-o", page, "--force")
    assert "was not available" not in page.read_text()


def test_without_the_mask_it_says_what_to_pull(
    run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("remote", "add", "lab", tmp_path / "lab")
    run("push", REF)
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "elsewhere"))
    run("pull", REF, "--only", "delta")
    run("remote", "remove", "lab")
    run("remote", "add", "other", tmp_path / "other")
    pair[0].rename(tmp_path / "moved")
    told = run("report", REF, "-o", tmp_path / "report.html", "--json", status=66)
    assert told.json["error"]["hint"] == f"maskreg pull {REF} --only mask"
    assert "the page says" not in told.err


def test_a_failure_leaves_nothing(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    page = folder / "report.html"
    assert (
        "has the values of the artifact's target" in run("report", REF, "--source", pair[1], "-o", page, status=65).err
    )
    run("report", "nothing", "-o", page, status=66)
    run("report", REF, "--against", "nothing", "-o", page, status=66)
    (tmp_path / "file").write_text("mine")
    run("report", REF, "-o", tmp_path / "file" / "report.html", status=73)
    told = run("report", REF, "-o", page, "--plots", pair[0] / "config.json", status=73).err
    assert f"{pair[0] / 'config.json'}: cannot be written" in told
    assert list(folder.iterdir()) == []


def test_words_from_elsewhere_are_words(run: Run, artifact: str, tmp_path: Path) -> None:
    with Registry.local(Settings.load()) as here:
        here.publish(Ref.parse(REF), Digest(artifact), card=Card(EVIL, EVIL, EVIL, EVIL, {EVIL: EVIL}))
    run("report", REF, "-o", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "<img" not in text
    assert text.count("&lt;img src=x onerror=alert(1)&gt;") == 6


def test_without_the_libraries_it_names_the_extra(
    run: Run, artifact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    told = run("report", REF, "-o", tmp_path / "report.html", status=78).err
    assert "matplotlib" in told
    assert f"next: {install_command('report')}" in told


def test_trained_models_share_more_than_rounding(run: Run, tmp_path: Path) -> None:
    for name in ("target", "target-seed1"):
        run("extract", DEMO / "source", DEMO / name, "--name", name, "--mask-only")
    done = run("report", "target", "--against", "target-seed1", "-o", tmp_path / "report.html", "--json").json
    assert done["answer"] == "more"
    text = (tmp_path / "report.html").read_text()
    assert "96.1 % of the mask lies where rounding alone would put it" in " ".join(text.split())
    assert "459,566 of 986,496 coordinates" in text
