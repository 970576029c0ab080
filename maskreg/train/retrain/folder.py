"""The folder of a run, consistent at every moment, kill -9 included.

``run.json``       the setup, where its files are, and the environments; a run with another setup may only take the
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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from maskreg import errors
from maskreg.disk import creating, replacing, sync_folder
from maskreg.document import parse_object
from maskreg.errors import CannotCreateError, MaskregError, OutputExistsError, TryAgainError
from maskreg.train.retrain.setup import RunSetup


@dataclass(frozen=True)
class RunPaths:
    """Where a run finds what its setup identifies (``home`` is the registry's folder), and the steps between saves."""

    source: str
    data: str
    home: str
    teacher: str = ""
    save_every: int = 50


_RUN = "run.json"
_FAILURE = "failure.json"
_COMPLETE = "complete"
"""A file in a save that is whole: TRL writes its saves in place."""
_MAX_BYTES = 1 << 24


class RunFolder:
    """The folder of one run.

    Attributes:
        path: of the folder, absolute.
        model: where the result appears.
        log: output of the processes that torchrun starts.
        checkpoints: where TRL saves.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self.model = self.path / "model"
        self.log = self.path / "launcher.log"
        self.checkpoints = self.path / "checkpoints"
        self._metrics = self.path / "metrics.jsonl"

    # -- setup

    def has_run(self) -> bool:
        """Whether a run has begun here; otherwise one can."""
        with creating(self.path):  # a name may be too long, or a folder above unreadable
            if (self.path / _RUN).is_file():
                return True
        if os.path.lexists(self.path) and not (self.path.is_dir() and all(map(_is_begun, self.path.iterdir()))):
            raise OutputExistsError(self.path, reason="and holds no run", hint="choose another -o")
        above = next(folder for folder in self.path.parents if os.path.lexists(folder))
        if not above.is_dir() or not os.access(above, os.W_OK):
            reason = "is not writable" if above.is_dir() else "is not a directory"
            raise CannotCreateError(f"{self.path} cannot be created: {above} {reason}", hint="choose another -o")
        return False

    def check(self, setup: RunSetup) -> None:
        """Make sure that the run in this folder, if there is one, has this setup or nothing to lose."""
        if not self.has_run() or not (self.model.exists() or self._saves()):
            return
        if differences := self.setup().differences(setup):
            raise OutputExistsError(
                self.path,
                reason=f"and holds another run: {'; '.join(differences)}",
                hint="choose another -o; or give the options of that run to resume it",
            )

    def begin(self, setup: RunSetup, paths: RunPaths) -> None:
        """Write the setup and the paths, and remove what a process that was killed left of a save."""
        self.check(setup)
        with creating(self.path):
            self._write(_RUN, {"setup": asdict(setup), "paths": asdict(paths), "environments": self.environments()})
            self.checkpoints.mkdir(exist_ok=True)
            for save in self.checkpoints.glob("checkpoint-*"):
                if not (save / _COMPLETE).exists():
                    shutil.rmtree(save)
        self.take_failure()

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Lock the folder. The lock ends when every process that has the file open has ended or closed it."""
        with creating(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise TryAgainError(
                    f"another process trains in {self.path}", hint=f"wait for it, or end it: fuser {self.path}/lock"
                ) from error
            yield handle
        finally:
            os.close(handle)

    def setup(self) -> RunSetup:
        """The setup of the run."""
        return RunSetup.from_json(self._read(_RUN)["setup"])

    def paths(self) -> RunPaths:
        """Where its files are."""
        return RunPaths(**self._read(_RUN)["paths"])

    # -- progress

    def environments(self) -> list[dict[str, Any]]:
        """In what environments steps were taken, each with the step after which it began, in order."""
        if not (self.path / _RUN).exists():
            return []
        entries: list[dict[str, Any]] = self._read(_RUN)["environments"]
        return entries

    def resume(self, done: int, environment: Mapping[str, Any]) -> None:
        """Forget the steps after ``done``, which are now taken in this environment."""
        self.forget_after(done)
        kept = [entry for entry in self.environments() if entry["after_step"] < done]
        if not kept or {**kept[-1], "after_step": 0} != {**environment, "after_step": 0}:
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
            for file in save.iterdir():
                if file.is_file():
                    with file.open("rb") as opened:
                        os.fsync(opened.fileno())
            (save / _COMPLETE).touch()
            sync_folder(save)
            sync_folder(self.checkpoints)

    def latest_save(self) -> tuple[int, Path] | None:
        """Step and folder of the last whole save from which the run can resume; None without one.

        The save of the last step must hold the whole model: only Trainer can read shards of FSDP, and it takes at
        least one step after it has read a save.
        """
        steps = self.setup().steps if self.has_run() else 0
        saves = (save for save in reversed(self._saves()) if save[0] < steps or any(save[1].glob("*.safetensors")))
        return next(saves, None)

    def _saves(self) -> list[tuple[int, Path]]:
        """Steps and folders of all whole saves, in order."""
        saves = [file.parent for file in self.checkpoints.glob(f"checkpoint-*/{_COMPLETE}")]
        return sorted((int(save.name.rpartition("-")[2]), save) for save in saves)

    # -- result

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, which marks the run as complete."""
        self._write("summary.json", summary)

    def summary(self) -> dict[str, Any] | None:
        """The summary; None while the run is not complete."""
        return self._read("summary.json") if (self.path / "summary.json").exists() else None

    def record_failure(self, error: MaskregError) -> None:
        """Leave an error for the process that started this one, unless another process has."""
        if not (self.path / _FAILURE).exists():
            # The nearest base class that is constructed from a message and a hint.
            kind = next(kind for kind in type(error).__mro__ if "__init__" not in vars(kind) or kind is MaskregError)
            self._write(_FAILURE, {"kind": kind.__name__, **error.to_json()})

    def take_failure(self) -> MaskregError | None:
        """The error that a process left, which is removed; None without one."""
        if not (self.path / _FAILURE).exists():
            return None
        record = self._read(_FAILURE)
        (self.path / _FAILURE).unlink()
        error: MaskregError = getattr(errors, record["kind"])(record["message"], hint=record["hint"], **record["facts"])
        error.code = record["code"]
        return error

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        with creating(self.path), replacing(self.path / name) as file:
            file.write((json.dumps(dict(value), indent=2) + "\n").encode())

    def _read(self, name: str) -> dict[str, Any]:
        return parse_object((self.path / name).read_bytes(), str(self.path / name), max_bytes=_MAX_BYTES)


def _is_begun(path: Path) -> bool:
    """Whether a file may be left by a run that died before its setup was written."""
    return path.name == "lock" or (path.name.startswith(f".{_RUN}.") and path.name.endswith(".draft"))
