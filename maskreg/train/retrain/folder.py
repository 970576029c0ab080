"""The folder of a run, consistent at every moment, kill -9 included.

``run.json``       the setup and the environments in which steps were taken; a run with another setup can only take the
                   place of one that has saved nothing
``metrics.jsonl``  one line per step
``checkpoints/``   TRL's last two saves, from which a run resumes
``model/``         the result, in the source's layout
``summary.json``   written last: the run is complete
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from maskreg.disk import creating, replacing, sync_folder
from maskreg.document import parse_object
from maskreg.errors import CannotCreateError, OutputExistsError, TryAgainError
from maskreg.train.retrain.setup import RunSetup

_RUN = "run.json"
_COMPLETE = "complete"
"""A file in a save that is whole: TRL writes its saves in place."""
_MAX_BYTES = 1 << 24
_ELSEWHERE = "choose another output"


class RunFolder:
    """The folder of one run.

    Attributes:
        path: of the folder, absolute.
        model: where the result appears.
        checkpoints: where TRL saves.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self.model, self.checkpoints = self.path / "model", self.path / "checkpoints"
        self._metrics = self.path / "metrics.jsonl"

    def has_run(self) -> bool:
        """Whether a run has begun here; otherwise one can."""
        with creating(self.path):  # a name can be too long, or a folder above unreadable
            # Listed once: a run can begin here meanwhile.
            names = [file.name for file in self.path.iterdir()] if self.path.is_dir() else []
            taken = os.path.lexists(self.path) and not self.path.is_dir()
        if _RUN in names:
            return True
        # A run that died before its setup was written leaves these.
        if taken or not all(name.startswith(("lock", f".{_RUN}.")) for name in names):
            raise OutputExistsError(self.path, reason="and holds no run", hint=_ELSEWHERE)
        above = next(folder for folder in self.path.parents if os.path.lexists(folder))
        if not above.is_dir() or not os.access(above, os.W_OK):
            reason = "is not writable" if above.is_dir() else "is not a directory"
            raise CannotCreateError(f"{self.path} cannot be created: {above} {reason}", hint=_ELSEWHERE)
        return False

    def check(self, setup: RunSetup) -> None:
        """Make sure that the run in this folder, if there is one, has this setup or nothing to lose."""
        if not self.has_run() or not (self.model.exists() or self._saves()):
            return
        sides = self._read(_RUN)["setup"], asdict(setup)
        there, now = ({**side, **side["config"], "config": None} for side in sides)
        names = [name for name in {**there, **now} if there.get(name) != now.get(name)]
        if names:
            told = "; ".join(f"{name}: {there.get(name)!r} there, {now.get(name)!r} now" for name in names)
            hint = f"{_ELSEWHERE}; or give the options of that run to resume it"
            raise OutputExistsError(self.path, reason=f"and holds another run: {told}", hint=hint)

    def begin(self, setup: RunSetup) -> None:
        """Write the setup, and remove what a process that was killed left of a save."""
        self.check(setup)
        with creating(self.path):
            self._write(_RUN, {"setup": asdict(setup), "environments": self.environments()})
            self.checkpoints.mkdir(exist_ok=True)
            for save in self.checkpoints.glob("checkpoint-*"):
                if not (save / _COMPLETE).exists():
                    shutil.rmtree(save)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other runs."""
        with creating(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                hint = f"wait for it, or end it: fuser {self.path}/lock"
                raise TryAgainError(f"another process trains in {self.path}", hint=hint) from error
            yield

    def environments(self) -> list[dict[str, Any]]:
        """In what environments steps were taken, each with the step after which it began, in order."""
        return list(self._read(_RUN)["environments"]) if (self.path / _RUN).exists() else []

    def resume(self, done: int, environment: Mapping[str, Any]) -> None:
        """Forget the steps after ``done``, which are now taken in this environment."""
        self.forget_after(done)
        kept = [entry for entry in self.environments() if entry["after_step"] < done]
        if not kept or {**kept[-1], "after_step": done} != {"after_step": done, **environment}:
            kept.append({"after_step": done, **environment})
        self._write(_RUN, {**self._read(_RUN), "environments": kept})

    def forget_after(self, done: int) -> None:
        """Remove the metrics and the saves of the steps after ``done``."""
        for step, save in self._saves():
            if step > done:
                (save / _COMPLETE).unlink()
                shutil.rmtree(save)
        lines = [line for line in self.metrics() if line["step"] <= done]
        with creating(self._metrics), replacing(self._metrics) as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines).encode())

    def append_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Append the line of a step."""
        with creating(self._metrics), self._metrics.open("a") as file:
            file.write(json.dumps(dict(metrics)) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of all steps; a line that a killed process left incomplete is ignored."""
        if not self._metrics.exists():
            return []
        return [json.loads(line) for line in self._metrics.read_text().split("\n")[:-1]]

    def complete_save(self, step: int) -> None:
        """Mark TRL's save of a step as whole, once it is on the disk."""
        save = self.checkpoints / f"checkpoint-{step}"
        with creating(save):
            for file in filter(Path.is_file, save.iterdir()):
                with file.open("rb") as opened:
                    os.fsync(opened.fileno())
            (save / _COMPLETE).touch()
            sync_folder(save)
            sync_folder(self.checkpoints)

    def latest_save(self, steps: int) -> tuple[int, Path] | None:
        """Step and folder of the last whole save from which a run of so many steps can resume; None without one.

        The save of the last step must hold the whole model: only Trainer can read shards of FSDP, and it takes at
        least one step after it has read a save.
        """
        saves = (save for save in reversed(self._saves()) if save[0] < steps or any(save[1].glob("*.safetensors")))
        return next(saves, None)

    def _saves(self) -> list[tuple[int, Path]]:
        """Steps and folders of all whole saves, in order."""
        saves = [file.parent for file in self.checkpoints.glob(f"checkpoint-*/{_COMPLETE}")]
        return sorted((int(save.name.rpartition("-")[2]), save) for save in saves)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, which marks the run as complete."""
        self._write("summary.json", summary)

    def summary(self) -> dict[str, Any] | None:
        """The summary; None while the run is not complete."""
        return self._read("summary.json") if (self.path / "summary.json").exists() else None

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        with creating(self.path), replacing(self.path / name) as file:
            file.write((json.dumps(dict(value), indent=2) + "\n").encode())

    def _read(self, name: str) -> dict[str, Any]:
        return parse_object((self.path / name).read_bytes(), str(self.path / name), max_bytes=_MAX_BYTES)
