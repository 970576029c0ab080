"""Kills, one after another, of every command that writes; after each, everything is old or new, whole, and clean.

Half of the kills come at a numbered point (see :mod:`tests.e2e.attack.dying`), half at a random time::

    reset the world                    homes, remote, outputs: as they were before the command
    run the command, kill it
    look                               names, lists and outputs are old or new, and verify finds nothing
    run the same command               it succeeds, or says that its work was done
    look again                         names, lists and outputs are new
    doctor and gc                      no marker, no draft, no temporary file is left
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from maskreg.checkpoint.output import clean_stale
from maskreg.store import FileStore
from maskreg.store.reflog import RefLog
from tests.e2e.attack.damages import Tally
from tests.e2e.attack.dying import forked
from tests.e2e.attack.judging import effect_of
from tests.e2e.attack.people import Member, Said
from tests.e2e.attack.stage import Stage, contents, files, lay_out
from tests.e2e.attack.writers import NOW, Writer, writers

_UNFINISHED = re.compile(r"(^|/)(\.tmp|staging|incoming|doomed)/|\.maskreg-|\.draft$|-journal$|-wal$")

FOLDERS = ("ada", "bob", "carol", "work", "remote")
"""Everything that commands can change."""

State = Mapping[str, Any]
World = Mapping[str, Mapping[str, bytes]]
"""Bytes of every file in each of these folders."""


class Kills:
    """Kills of commands that write, in turn."""

    def __init__(self, stage: Stage, only: Collection[str] = ()) -> None:
        for name in ("work", "carol"):
            (stage.folder / name).mkdir(exist_ok=True)
        stage.fresh()
        self._stage, self._world = stage, {name: contents(stage.folder / name) for name in FOLDERS}
        self._writers = [writer for writer in writers(stage) if not only or writer.name in only]
        self._killed: dict[str, Killed] = {}

    def run(self, seed: int, number: int, tally: Tally) -> None:
        """Kill one command once, and look."""
        time, which = divmod(number, len(self._writers))
        writer = self._writers[which]
        if writer.name not in self._killed:
            self._killed[writer.name] = Killed(self._stage, writer, self._world)
        self._killed[writer.name].run(seed, time, tally)


class Killed:
    """Kills of one command.

    Attributes:
        writer: the command.
        old: the state before it.
        new: the state after it.
        points: how many points it passes.
        seconds: how long it takes, when it is not killed.
    """

    def __init__(self, stage: Stage, writer: Writer, world: World) -> None:
        self.stage = stage
        self.writer = writer
        self.member: Member = getattr(stage, writer.who)
        self.reset(world)
        writer.before(stage)
        self.world = {name: contents(stage.folder / name) for name in FOLDERS}
        self.old = self.state()
        # In this process, so that forked ones find its modules imported.
        self.member.must(*writer.args)
        self.new = self.state()
        again = self.member.run(*writer.args)
        assert again.status == writer.again, str(again)
        assert self.state() == self.new, f"{writer.name}: running it twice changes more than running it once"
        self.reset(self.world)
        ended = forked(self.command)
        assert not ended.status, ended.said
        self.points, self.seconds = ended.points, ended.seconds

    def command(self) -> Said:
        """Run the command."""
        return self.member.run(*self.writer.args)

    def run(self, seed: int, number: int, tally: Tally) -> None:
        """Kill the command once, and look."""
        rng = random.Random(f"{seed}/{self.writer.name}/{number}")
        self.reset(self.world)
        if rng.random() < 0.5:
            after = rng.uniform(0, 1.1) * self.seconds
            how, ended = f"after {after:.4f} s", forked(self.command, after=after)
        else:
            at = rng.randrange(self.points)
            how = f"at point {at} of {self.points}"
            ended = forked(self.command, at=at)
        tally.counts[f"{self.writer.name}: {'killed' if ended.status < 0 else 'was done'}"] += 1
        tally.faults += [f"{self.writer.name}, killed {how}: {fault}" for fault in self.faults()]

    def faults(self) -> Iterator[str]:
        """Everything that is not as it has to be after a kill."""
        # First, because a list takes into the catalog what a killed command has not.
        yield from self._damage()
        left = self.state()
        for part in sorted({*left, *self.old, *self.new}):
            if left.get(part) not in (self.old.get(part), self.new.get(part)):
                yield f"{part} is neither old nor new: {left.get(part)}"
        again = self.command()
        was_done = left == self.new and again.status == self.writer.again
        if again.status != 0 and not was_done:
            yield f"running it again fails: {again}"
        state = self.state()
        for part in sorted({*state, *self.new}):
            if state.get(part) != self.new.get(part):
                yield f"{part} is not new after running it again: {state.get(part)}"
        yield from self._leftovers()
        yield from self._damage()

    def state(self) -> State:
        """What people see, part by part: tags, lists and outputs; no times."""
        state: dict[str, Any] = {}
        people = (self.stage.ada, self.stage.bob, self.stage.carol)
        for root in (*(member.registry for member in people), self.stage.folder / "remote"):
            for entry in RefLog(FileStore(root)).heads():
                state[f"tag {entry.ref} in {root}"] = entry.digest, entry.card.to_json()
        if self.member.registry.exists():
            rows = self.member.must("list", "--json").json["names"]
            state |= {f"{row['ref']} in the list": row["digest"] for row in rows}
        if (out := self.writer.makes) is not None:
            if not out.exists() and out.parent.is_dir():
                clean_stale(out.parent)  # killed between two renames: the next command puts the old output back
            state["output"] = effect_of(out)
        return state

    def reset(self, world: World) -> None:
        """Everything as it was in a world."""
        for name, objects in world.items():
            lay_out(self.stage.folder / name, objects)

    def _damage(self) -> Iterator[str]:
        if "repair" not in self.writer.name and self.member.registry.exists():
            yield from _failed(self.member, "verify", "--all")
        yield from _failed(self.stage.ada, "verify", "--all", "--remote", "team")

    def _leftovers(self) -> Iterator[str]:
        yield from _failed(self.member, "doctor", self.stage.folder / "work")
        yield from _failed(self.member, "gc", *NOW)
        yield from _failed(self.stage.ada, "gc", "--remote", "team", *NOW)
        if self.writer.name == "remote add":
            yield from _failed(self.member, "gc", "--remote", "spare", *NOW)
        for name in FOLDERS:
            for path in files(self.stage.folder / name):
                key = path.relative_to(self.stage.folder).as_posix()
                if _UNFINISHED.search(key):
                    yield f"{key} is left after doctor and gc"


def _failed(member: Member, *args: str | Path) -> Iterator[str]:
    said = member.run(*args)
    if said.status:
        yield str(said)
