"""The page, from names to a file, with what ``analyze`` found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

REF = "toy-opd:v1"


@pytest.mark.torch
@pytest.mark.usefixtures("artifact", "two")
def test_from_two_names_to_a_page(
    run: Run, pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analyzed = run("analyze", REF, "--rank", "4", "--preset", "small", "--json").json["ref"]
    page, plots = tmp_path / "a/b/report.html", tmp_path / "c/d/plots"
    run("combine", REF, "two", "--how", "or", "--name", "either")
    others = ("--against", "two", "--against", "either")
    done = run("report", REF, *others, "-o", page, "--plots", plots, "--json").json
    assert done["path"] == str(page)
    assert (done["ref"], done["answer"]) == (REF, "open")
    assert [each["ref"] for each in done["against"]] == ["two", "either"]
    assert done["intersections"] == run("compare", REF, "two", "either", "--json").json["intersections"]
    assert sorted(done["plots"]) == sorted(str(path) for path in plots.iterdir())
    assert len(done["plots"]) > 12
    for name in ("density", "overlap-1", "intersections"):
        assert (plots / f"{name}.pdf").read_bytes().startswith(b"%PDF-")
    # The source was found where extract had seen it.
    assert "rounding" in page.read_text()
    # An analysis is found by its name if it is of the mask.
    assert f"From {analyzed}." in page.read_text()
    run("extract", pair[1], pair[0], "--name", REF)
    run("report", REF, "-o", tmp_path / "b.html")
    assert "<h2>Geometry" not in (tmp_path / "b.html").read_text()
    run("report", REF, "--analysis", analyzed, "-o", tmp_path / "c.html", status=2)
    # Plots that another process has written since they were looked for stay.
    monkeypatch.setattr("maskreg.workspace.verbs.report._check_folder", lambda *_, **__: None)
    run("report", REF, "-o", tmp_path / "d.html", "--plots", plots, status=73)


def test_a_failure_leaves_nothing(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    (folder := tmp_path / "out").mkdir()
    page = folder / "report.html"
    run("report", REF, "--source", pair[1], "-o", page, status=65)
    run("report", REF, "--against", "nothing", "-o", page, status=66)
    run("report", REF, "-o", page, "--plots", pair[0] / "config.json", status=73)
    run("report", REF, "-o", page.with_suffix(".pdf"), status=2)
    run("report", REF, "--figure", "density", "-o", page, status=2)
    run("report", REF, "--figure", "", "-o", page.with_suffix(".svg"), status=2)
    run("report", REF, "-o", "-", status=2)
    run("report", REF, "-o", page, "--plots", pair[0], status=73)
    assert list(folder.iterdir()) == []


def test_one_figure_has_the_format_that_was_asked_for(run: Run, artifact: str, tmp_path: Path) -> None:
    against = ("--against", REF, "--against", REF)
    for name, column in (("overlap-1", "null"), ("intersections", "in exactly these masks")):
        run("report", REF, *against, "--figure", name, "-o", tmp_path / f"{name}.csv")
        assert (tmp_path / f"{name}.csv").read_text().startswith(column)
    drawn = run("report", REF, "--figure", "density", "--format", "png", "-o", tmp_path / "density", "--json").json
    assert Path(drawn["path"]).read_bytes().startswith(b"\x89PNG")
