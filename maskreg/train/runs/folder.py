"""The folder of a run: its setup, progress and result, consistent at every moment, kill -9 included.

``run.json``       the setup; a run with another setup may only take the place of one that has saved nothing
``paths.json``     where the files are that the setup identifies; may change
``environments.json``  processes, device and libraries, and after which step they began
``metrics.jsonl``  one line per step
``checkpoints/``   the last two states that a run can resume from
``model/``         the result, in the source's layout
``summary.json``   written last: the run is complete
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from maskreg import errors
from maskreg.disk import creating, replacing, sync_folder
from maskreg.document import parse_object
from maskreg.errors import CannotCreateError, MaskregError, OutputExistsError, TryAgainError
from maskreg.train.recipes.setup import RunSetup
from maskreg.train.runs.parallel import World


@dataclass(frozen=True)
class RunPaths:
    """Where a run finds what its setup identifies, and how it is carried out.

    Attributes:
        source: folder of the checkpoint that training starts from.
        data: the data file.
        home: folder of the registry that has the mask.
        teacher: folder of the teacher; empty without one.
        device: ``cpu`` or ``cuda``.
        parallel: how several processes share the model: ``fsdp`` or ``ddp``.
        save_every: steps between checkpoints.
    """

    source: str
    data: str
    home: str
    teacher: str = ""
    device: str = "cpu"
    parallel: Literal["fsdp", "ddp"] = "fsdp"
    save_every: int = 50


KEPT_CHECKPOINTS = 2
"""More than one, because a machine may die while it writes the last."""

_SETUP = "run.json"
_PATHS = "paths.json"
_FAILURE = "failure.json"
_ENVIRONMENTS = "environments.json"
_MAX_BYTES = 1 << 20


class RunFolder:
    """The folder of one run.

    Attributes:
        path: of the folder, absolute.
        model: where the result appears.
        log: output of the processes that torchrun starts.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self.model = self.path / "model"
        self.log = self.path / "launcher.log"
        self._metrics = self.path / "metrics.jsonl"
        self._checkpoints = self.path / "checkpoints"

    # -- setup

    def has_run(self) -> bool:
        """Whether a run has begun here; otherwise one can."""
        with creating(self.path):  # a name may be too long, or a folder above unreadable
            if (self.path / _SETUP).is_file():
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
        if not self.has_run() or not (self.model.exists() or self.latest_checkpoint()):
            return
        if differences := self.setup().differences(setup):
            raise OutputExistsError(
                f"{self.path} holds another run: " + "; ".join(differences),
                hint="choose another -o; or give the options of that run to resume it",
            )

    def begin(self, setup: RunSetup, paths: RunPaths) -> None:
        """Create the folder, and write the setup and the paths."""
        self.check(setup)
        with creating(self.path):
            self._write(_SETUP, {"schema": "maskreg.run/1", "setup": setup.to_json()})
            self._checkpoints.mkdir(exist_ok=True)
            self._write(_PATHS, asdict(paths))

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
        return RunSetup.from_json(self._read(_SETUP)["setup"])

    def paths(self) -> RunPaths:
        """Where its files are."""
        return RunPaths(**self._read(_PATHS))

    # -- environments

    def record_environment(self, done: int, environment: Mapping[str, Any]) -> None:
        """Note in which environment the steps after ``done`` are taken, unless it equals the one of the step before.

        What was noted for steps that are now taken again is forgotten::

            resumed after step 50:  [after 0: A, after 70: B] + C  ->  [after 0: A, after 50: C]
        """
        kept = [entry for entry in self.environments() if entry["after_step"] < done]
        if not kept or {**kept[-1], "after_step": 0} != {**environment, "after_step": 0}:
            kept.append({"after_step": done, **environment})
        self._write(_ENVIRONMENTS, {"environments": kept})

    def environments(self) -> list[dict[str, Any]]:
        """The environments of the run, each with the step after which it began, in order."""
        if not (self.path / _ENVIRONMENTS).exists():
            return []
        entries: list[dict[str, Any]] = self._read(_ENVIRONMENTS)["environments"]
        return entries

    # -- metrics

    def append_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Append the line of a step."""
        with creating(self._metrics), self._metrics.open("a") as file:
            file.write(json.dumps(dict(metrics)) + "\n")

    def metrics(self, after: int = 0) -> list[dict[str, Any]]:
        """The lines of all steps after this one; a line that a killed process left incomplete is ignored."""
        if not self._metrics.exists():
            return []
        lines: list[dict[str, Any]] = []
        # From the end, so that following a long run does not parse all of it again and again.
        for line in reversed(self._metrics.read_text().split("\n")[:-1]):
            row = json.loads(line)
            if row["step"] <= after:
                break
            lines.append(row)
        return lines[::-1]

    def truncate_metrics(self, step: int) -> None:
        """Remove the lines of all steps after this one, which will be taken again."""
        kept = [line for line in self.metrics() if line["step"] <= step]
        with creating(self._metrics), replacing(self._metrics) as file:
            file.write("".join(json.dumps(line) + "\n" for line in kept).encode())

    # -- checkpoints

    def save_checkpoint(self, step: int, write: Callable[[Path], None], world: World) -> None:
        """Write a checkpoint, whole or not at all, and remove the oldest; a collective call.

        Only the first process renames and removes; barriers keep the others from writing into a folder that does not
        exist yet, and from going on with a checkpoint that is not there::

            first process                       others
            create draft folder
            ------------------ barrier ------------------
            write(draft)                        write(draft)
            ------------------ barrier ------------------
            fsync, rename draft, remove old
            ------------------ barrier ------------------
        """
        path = self._checkpoints / f"{step:08}"
        draft = path.with_suffix(".draft")
        with creating(path), self._drafting(draft, world):
            world.barrier()
            write(draft)
            world.barrier()
            if world.is_first:
                self._publish(draft, path)
        world.barrier()

    def latest_checkpoint(self) -> tuple[int, Path] | None:
        """Step and folder of the last checkpoint; None without one."""
        saved = self._saved()
        return saved[-1] if saved else None

    @contextmanager
    def _drafting(self, draft: Path, world: World) -> Iterator[None]:
        if world.is_first:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
        try:
            yield
        finally:
            # Also on failure: half a checkpoint may have filled the disk, and reporting that takes space.
            if world.is_first:
                shutil.rmtree(draft, ignore_errors=True)

    def _publish(self, draft: Path, path: Path) -> None:
        for file in draft.iterdir():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        sync_folder(draft)
        shutil.rmtree(path, ignore_errors=True)
        draft.replace(path)
        sync_folder(self._checkpoints)
        for _, old in self._saved()[:-KEPT_CHECKPOINTS]:
            shutil.rmtree(old)

    def _saved(self) -> list[tuple[int, Path]]:
        if not self._checkpoints.is_dir():
            return []
        return sorted((int(path.name), path) for path in self._checkpoints.iterdir() if path.name.isdigit())

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
            record = {"kind": kind.__name__, "code": error.code, "message": error.message, "hint": error.hint}
            self._write(_FAILURE, record)

    def take_failure(self) -> MaskregError | None:
        """The error that a process left, which is removed; None without one."""
        if not (self.path / _FAILURE).exists():
            return None
        record = self._read(_FAILURE)
        (self.path / _FAILURE).unlink()
        error: MaskregError = getattr(errors, record["kind"])(record["message"], hint=record["hint"])
        error.code = record["code"]
        return error

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        with creating(self.path), replacing(self.path / name) as file:
            file.write((json.dumps(dict(value), indent=2) + "\n").encode())

    def _read(self, name: str) -> dict[str, Any]:
        return parse_object((self.path / name).read_bytes(), str(self.path / name), max_bytes=_MAX_BYTES)


def _is_begun(path: Path) -> bool:
    """Whether a file may be left by a run that died before its setup was written."""
    return path.name == "lock" or (path.name.startswith(f".{_SETUP}.") and path.name.endswith(".draft"))
