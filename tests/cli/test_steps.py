"""The steps of a run: a bar at a terminal, which makes room for the next, and some lines elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from maskreg_cli import progress as bars
from maskreg_cli.output import Output
from maskreg_cli.retrain import Steps

from tests.cli.terminal import watch


def line(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "loss": 0.5, "lr": 1e-6, "grad_norm": 2.0, "tokens": 100, "seconds": 0.1, **more}


def test_lines_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with Steps(Output()) as steps:
        steps.begin(0, 100)
        for number in range(1, 101):
            steps.step(line(number))
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "loss before the first step: 0.5000"
    assert said[1:] == [
        f"step {number:>3}/100  loss 0.5000  lr 1.00e-06  grad 2  1,000 tokens/s" for number in range(5, 101, 5)
    ]


def test_a_run_that_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with Steps(Output()) as steps:
        steps.begin(50, 100)
        steps.step(line(51, moved=0.25, grad_norm=None, tokens=0))
    said = capsys.readouterr().err.splitlines()
    assert said == ["resuming after step 50 of 100", "step  51/100  loss 0.5000  lr 1.00e-06  0.10 s  moved 25.0 %"]


@pytest.mark.parametrize("done", [0, 2])
def test_the_bar_is_gone_when_the_result_is_compared(done: int, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    monkeypatch.setattr(bars, "DELAY_SECONDS", 0.0)
    output = Output()
    with Steps(output) as steps, output.progress() as progress:
        steps.begin(done, 2)
        for number in range(done + 1, 3):
            steps.step(line(number))
        assert ("2/2" in screen.getvalue()) == (done == 0)
        progress.start("verify", 1 << 30)
        progress.advance(1 << 29)
        progress.advance(1 << 29)
    assert "verify" in screen.getvalue()
