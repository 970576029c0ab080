"""The folder of a run: what it is, how far it has come, and what it gave; whole at every moment, kill -9 included.

``run.json``       the setup: another one is another run, which may take the place of one that has saved nothing
``places.json``    where the files are that it names; may change
``metrics.jsonl``  one line a step
``checkpoints/``   the last two states that a run can go on from
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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from maskreg import errors
from maskreg.disk import creating, sync_folder
from maskreg.document import parse_object
from maskreg.errors import CannotCreateError, MaskregError, OutputExistsError, TryAgainError
from maskreg.train.recipes.setup import Places, Setup

KEPT = 2
"""Checkpoints that stay: the last might be the one that a machine died in."""

_FAILURE = "failure.json"
_MAX_BYTES = 1 << 20


class Folder:
    """The folder of one run.

    Attributes:
        path: of the folder, absolute.
        model: where the result appears.
        log: what processes say that torchrun starts.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self.model = self.path / "model"
        self.log = self.path / "launcher.log"
        self._metrics = self.path / "metrics.jsonl"
        self._checkpoints = self.path / "checkpoints"

    def begun(self) -> bool:
        """Whether a run has begun here; nothing else may be here.

        Raises:
            OutputExistsError: something else is.
            CannotCreateError: nothing can be.
        """
        if (self.path / "run.json").is_file():
            return True
        if os.path.lexists(self.path) and not (
            self.path.is_dir() and {path.name for path in self.path.iterdir()} <= {"lock", ".run.json.draft"}
        ):
            raise OutputExistsError(f"{self.path} exists already and holds no run", hint="choose another -o")
        above = next(folder for folder in self.path.parents if os.path.lexists(folder))
        if not above.is_dir() or not os.access(above, os.W_OK):
            why = "may not be written to" if above.is_dir() else "is no directory"
            raise CannotCreateError(f"{self.path} cannot be made: {above} {why}", hint="choose another -o")
        return False

    def check(self, setup: Setup) -> None:
        """See that the run that has begun here, if one has, is this one, or has nothing to lose.

        Raises:
            OutputExistsError: something else is here, such as another run, and what differs.
            DataError: ``run.json`` is damaged, or of another version.
        """
        if not self.begun() or not (self.model.exists() or self.latest()):
            return
        if there := self.setup().difference(setup):
            raise OutputExistsError(
                f"{self.path} holds another run: " + "; ".join(there),
                hint="choose another -o; or give the options of that run to go on with it",
            )

    def begin(self, setup: Setup, places: Places) -> None:
        """Make the folder, and write down what the run is and where things are.

        Raises:
            OutputExistsError: see :meth:`check`.
        """
        self.check(setup)
        with creating(self.path):
            self._write("run.json", {"schema": "maskreg.run/1", "setup": setup.to_json()})
            self._checkpoints.mkdir(exist_ok=True)
            self._write("places.json", asdict(places))

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Keep other processes out of the folder; they are let in when all that hold the file have ended.

        Returns:
            The open file, for processes that are started to hold it too.

        Raises:
            TryAgainError: another process works here.
        """
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

    def setup(self) -> Setup:
        """What the run is.

        Raises:
            DataError: ``run.json`` is damaged, or of another version.
        """
        return Setup.from_json(self._read("run.json")["setup"])

    def places(self) -> Places:
        """Where things are."""
        return Places(**self._read("places.json"))

    # -- how far it has come

    def step(self, metrics: Mapping[str, Any]) -> None:
        """Add the line of a step.

        Raises:
            CannotCreateError: it cannot be written.
        """
        with creating(self._metrics), self._metrics.open("a") as file:
            file.write(json.dumps(dict(metrics)) + "\n")

    def metrics(self, after: int = 0) -> list[dict[str, Any]]:
        """The lines of the steps after that one; one that a killed process has half written is none."""
        if not self._metrics.exists():
            return []
        found: list[dict[str, Any]] = []
        # From the end, so that whoever follows a long run does not parse all of it again and again.
        for line in reversed(self._metrics.read_text().split("\n")[:-1]):
            row = json.loads(line)
            if row["step"] <= after:
                break
            found.append(row)
        return found[::-1]

    def go_back(self, step: int) -> None:
        """Forget lines after a step, which are written again.

        Raises:
            CannotCreateError: nothing can be written.
        """
        kept = [line for line in self.metrics() if line["step"] <= step]
        draft = self._metrics.with_suffix(".draft")
        with creating(self._metrics):
            draft.write_text("".join(json.dumps(line) + "\n" for line in kept))
            draft.replace(self._metrics)

    def save(self, step: int, write: Callable[[Path], None], *, first: bool, meet: Callable[[], None]) -> None:
        """Write a checkpoint under another name, let it appear, and remove those that are too old.

        Args:
            step: that it is the state after.
            write: writes it into a folder; in every process.
            first: whether this process does what only one may do.
            meet: waits for the other processes.

        Raises:
            NoSpaceError: the disk is full; what was written of it is removed, the checkpoints before are there.
            CannotCreateError: it cannot be written.
        """
        place = self._checkpoints / f"{step:08}"
        draft = place.with_suffix(".draft")
        with creating(place), self._drafting(draft, first):
            meet()
            write(draft)
            meet()
            if first:
                self._let_appear(draft, place)
        meet()

    @contextmanager
    def _drafting(self, draft: Path, first: bool) -> Iterator[None]:
        if first:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
        try:
            yield
        finally:
            # Half a checkpoint may have filled the disk, and word of that needs room.
            if first:
                shutil.rmtree(draft, ignore_errors=True)

    def _let_appear(self, draft: Path, place: Path) -> None:
        for file in draft.iterdir():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        sync_folder(draft)
        shutil.rmtree(place, ignore_errors=True)
        draft.replace(place)
        sync_folder(self._checkpoints)
        for _, old in self._saved()[:-KEPT]:
            shutil.rmtree(old)

    def latest(self) -> tuple[int, Path] | None:
        """The last checkpoint: after which step, and where; None when there is none."""
        saved = self._saved()
        return saved[-1] if saved else None

    def _saved(self) -> list[tuple[int, Path]]:
        if not self._checkpoints.is_dir():
            return []
        return sorted((int(path.name), path) for path in self._checkpoints.iterdir() if path.name.isdigit())

    # -- what it gave

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, which says that the run is complete."""
        self._write("summary.json", summary)

    def summary(self) -> dict[str, Any] | None:
        """The summary; None while the run is not complete."""
        return self._read("summary.json") if (self.path / "summary.json").exists() else None

    def fail(self, error: MaskregError) -> None:
        """Leave word for the process that started this one, unless another has."""
        if not (self.path / _FAILURE).exists():
            # Of the ancestry, what is made of a message and a hint alone.
            plain = next(kind for kind in type(error).__mro__ if "__init__" not in vars(kind) or kind is MaskregError)
            told = {"kind": plain.__name__, "code": error.code, "message": error.message, "hint": error.hint}
            self._write(_FAILURE, told)

    def failure(self) -> MaskregError | None:
        """The error that a process left word of, which is taken away; None without."""
        if not (self.path / _FAILURE).exists():
            return None
        told = self._read(_FAILURE)
        (self.path / _FAILURE).unlink()
        error: MaskregError = getattr(errors, told["kind"])(told["message"], hint=told["hint"])
        error.code = told["code"]
        return error

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        draft = self.path / f".{name}.draft"
        with creating(self.path):
            with draft.open("w") as file:
                file.write(json.dumps(dict(value), indent=2) + "\n")
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path / name)
            sync_folder(self.path)

    def _read(self, name: str) -> dict[str, Any]:
        return parse_object((self.path / name).read_bytes(), str(self.path / name), max_bytes=_MAX_BYTES)
