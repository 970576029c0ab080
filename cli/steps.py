"""Progress of a training run on stderr: a bar at a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from maskreg.words import percent

from .output import Output

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_LINES = 20
"""Lines for a whole run, about."""


class Steps:
    """Shows every step, or some of them; a ``maskreg.train.runs.engine.StepListener``."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._steps = 0
        self._began = 0.0
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def begin(self, done: int, steps: int) -> None:
        """Training begins, or resumes."""
        self._steps, self._began = steps, time.monotonic()
        if done:
            self._output.note(f"resuming after step {done} of {steps}")
        if done < steps and not self._output.quiet and sys.stderr.isatty():
            self._draw(done)

    def step(self, metrics: Mapping[str, Any]) -> None:
        """A step is done."""
        number = metrics["step"]
        if number == 1 and self._steps > 1:
            self._output.note(f"loss before the first step: {metrics['loss']:.4f}")
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=number, description=_description(metrics))
        elif number == self._steps or number % max(1, self._steps // _LINES) == 0 or "moved" in metrics:
            self._output.note(f"step {number:>{len(str(self._steps))}}/{self._steps}  {_description(metrics)}")
        if number == self._steps:
            self._stop()

    def _draw(self, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}")
        self._bar = Progress(*columns, console=Console(file=sys.stderr), transient=True)
        self._task = self._bar.add_task("train", total=self._steps, completed=done)
        if self._output.waiting is not None:
            self._output.waiting.hide()
        self._bar.start()

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            if self._output.waiting is not None:
                self._output.waiting.show()
        self._bar = self._task = None

    def __enter__(self) -> Steps:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()


def _description(metrics: Mapping[str, Any]) -> str:
    norm, seconds = metrics["grad_norm"], max(metrics["seconds"], 1e-9)
    parts = [f"loss {metrics['loss']:.4f}", f"lr {metrics['lr']:.2e}"]
    parts += [] if norm is None else [f"grad {norm:.3g}"]
    parts += [f"{metrics['tokens'] / seconds:,.0f} tokens/s"] if metrics["tokens"] else [f"{seconds:.2f} s"]
    parts += [f"moved {percent(metrics['moved'])}"] if "moved" in metrics else []
    return "  ".join(parts)
