"""What ``analyze`` says, keeps and finds again."""

from __future__ import annotations

from pathlib import Path

from tests.checkpoints import make_checkpoint, widened
from tests.cli.conftest import Run, tensors

QUICK = ("--rank", "4", "--preset", "small")


def test_an_analysis_is_told_kept_and_found_again(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    line = ("analyze", "toy-opd:v1", "--source", pair[0], *QUICK)
    done = run(*line)
    again = run(*line)
    assert "analyzed before" in again.err
    assert run("analyze", "toy-opd-analysis:v1").out == again.out == done.out
    assert len(run("log", "toy-opd-analysis:v1", "--json").json) == 1
    other = run(*line, "--seed", "1", "--target", pair[1], "--json")
    assert "analyzed before" not in other.err
    assert (other.json["analysis"]["of"], other.json["analysis"]["recipe"]["target"]) == (artifact, "given")
    # The first is still known, although the name moved on; it needs no checkpoint.
    pair[0].rename(pair[0].with_name("moved"))
    back = run("analyze", "toy-opd:v1", *QUICK)
    assert "analyzed before" in back.err
    assert back.out == done.out
    told = run("analyze", "toy-opd:v1", *QUICK, "--seed", "2", status=66).err
    assert "--seed 2 --source CKPT" in told


def test_masters_are_measured_every_time(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    wide = {name: widened(tensor) for name, tensor in tensors().items()}
    masters = make_checkpoint(tmp_path / "masters", wide)
    run("extract", pair[0], masters, "--name", "wide")
    for _ in range(2):
        done = run("analyze", "wide", "--source", pair[0], "--target", masters, *QUICK)
        assert "masters" in done.out
        assert "analyzed before" not in done.err


def test_a_figure_that_is_undefined_is_not_said_to_be_unmeasured(run: Run, artifact: str) -> None:
    told = " ".join(run("analyze", "toy-opd:v1", "--paper", "geo").out.split())
    assert "principal_geo_0.30@rel:0.001: " in told
