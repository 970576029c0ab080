"""Pages that show what ``analyze`` found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoints import make_checkpoint, moved
from tests.cli.conftest import Run, tensors

pytestmark = pytest.mark.torch

REF = "toy-opd:v1"


@pytest.fixture
def analyzed(run: Run, artifact: str, pair: tuple[Path, Path]) -> str:
    """What the analysis of ``toy-opd:v1`` is called."""
    return str(run("analyze", REF, "--source", pair[0], "--json").json["ref"])


def test_an_analysis_is_found_by_its_name(run: Run, analyzed: str, tmp_path: Path) -> None:
    done = run("report", REF, "-o", tmp_path / "a.html", "--plots", tmp_path / "plots", "--json").json
    assert any("spectra-light.svg" in name for name in done["plots"])
    text = (tmp_path / "a.html").read_text()
    assert f"From {analyzed}." in text
    assert "where rounding alone gives" in text


def test_an_analysis_of_something_else_is_left_out(
    run: Run, analyzed: str, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    target = {n: moved(t, 0.5, 50 + i) for i, (n, t) in enumerate(tensors().items())}
    run("extract", pair[0], make_checkpoint(tmp_path / "other", target), "--name", REF)
    run("report", REF, "-o", tmp_path / "a.html")
    assert "<h2>Geometry" not in (tmp_path / "a.html").read_text()
    # Who names it is told.
    told = run("report", REF, "--analysis", analyzed, "-o", tmp_path / "b.html", status=2).err
    assert "is not an analysis of" in told
    run("report", REF, "--analysis", "nothing", "-o", tmp_path / "b.html", status=66)
    assert not (tmp_path / "b.html").exists()


def test_a_trajectory(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    half = make_checkpoint(tmp_path / "step-5", {n: moved(t, 0.2, i) for i, (n, t) in enumerate(tensors().items())})
    file = tmp_path / "run.json"
    file.write_text(run("analyze", "--trajectory", pair[0], half, pair[1], "--json").out)
    run("report", REF, "--trajectory", file, "-o", tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text()
    assert "Growth of the update" in text
    assert "step-5" in text
    assert str(tmp_path) not in text
    file.write_text("{}")
    assert "not a trajectory" in run("report", REF, "--trajectory", file, "-o", tmp_path / "b.html", status=65).err
    run("report", REF, "--trajectory", tmp_path / "none", "-o", tmp_path / "b.html", status=2)
