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
from collections.abc import Iterator, Mapping
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
from tests.e2e.attack.writers import NOW, Writer

_UNFINISHED = re.compile(r"(^|/)(\.tmp|staging|incoming|doomed)/|\.maskreg-|\.draft$|-journal$|-wal$")

State = Mapping[str, Any]


class Kills:
    """Kills of one command.

    Attributes:
        writer: the command.
        old: the state before it.
        new: the state after it.
        points: how many points it passes.
        seconds: how long it takes, when it is not killed.
    """

    def __init__(self, stage: Stage, writer: Writer, world: Mapping[str, bytes]) -> None:
        self.stage = stage
        self.writer = writer
        self.member = writer.who(stage)
        self.folders = ("ada", "bob", "carol", "work", "remote")
        self._lay_out(world)
        writer.before(stage)
        self.world = {name: contents(stage.folder / name) for name in self.folders}
        self.old = self.state()
        # In this process, so that forked ones find its modules imported.
        self.member.must(*writer.args)
        self.new = self.state()
        again = self.member.run(*writer.args)
        assert again.status == writer.again, str(again)
        assert self.state() == self.new, f"{writer.name}: running it twice changes more than running it once"
        self.reset()
        ended = forked(self.command)
        assert not ended.status, ended.said
        self.points, self.seconds = ended.points, ended.seconds

    def command(self) -> Said:
        """Run the command."""
        return self.member.run(*self.writer.args)

    def run(self, seed: int, number: int, tally: Tally) -> None:
        """Kill the command once, and look."""
        rng = random.Random(f"{seed}/{self.writer.name}/{number}")
        self.reset()
        if number % 2:
            after = rng.uniform(0, 1.1) * self.seconds
            how, killed = f"after {after:.4f} s", forked(self.command, after=after).killed
        else:
            at = number // 2 % self.points
            how = f"at point {at} of {self.points}"
            killed = forked(self.command, at=at).killed
        tally.counts[f"{self.writer.name}: {'killed' if killed else 'was done'}"] += 1
        for fault in self.faults():
            tally.faults.append(f"{number}: {self.writer.name}, killed {how}: {fault}")

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
        yield from self._damage()
        yield from self._leftovers()

    def state(self) -> State:
        """What people see, part by part: tags, lists and outputs; no times."""
        state: dict[str, Any] = {}
        for name, root in self._stores().items():
            for entry in RefLog(FileStore(root)).heads():
                state[f"tag {entry.ref} of {name}"] = entry.digest, entry.card.to_json()
        for member in (self.stage.ada, self.stage.bob, self.stage.carol):
            rows = member.must("list", "--json").json["names"] if member.registry.exists() else []
            state |= {f"{row['ref']} in the list of {member.home.name}": row["digest"] for row in rows}
        if (out := self.writer.makes) is not None:
            if not out.exists() and out.parent.is_dir():
                clean_stale(out.parent)  # killed between two renames: the next command puts the old output back
            state["output"] = effect_of(out)
        return state

    def reset(self) -> None:
        """Everything as it was before the command."""
        for name, objects in self.world.items():
            if contents(self.stage.folder / name) != objects:
                lay_out(self.stage.folder / name, objects)

    def _lay_out(self, world: Mapping[str, bytes]) -> None:
        for name in self.folders:
            inside = {key.split("/", 1)[1]: data for key, data in world.items() if key.startswith(f"{name}/")}
            lay_out(self.stage.folder / name, inside)

    def _stores(self) -> dict[str, Path]:
        stage = self.stage
        return {**{m.home.name: m.registry for m in (stage.ada, stage.bob, stage.carol)},
                "remote": stage.folder / "remote"}  # fmt: skip

    def _damage(self) -> Iterator[str]:
        repairs = "repair" in self.writer.name
        for member in (self.stage.ada, self.stage.bob, self.stage.carol):
            if member.registry.exists() and not (repairs and member is self.member):
                said = member.run("verify", "--all")
                if said.status:
                    yield str(said)
        said = self.stage.ada.run("verify", "--all", "--remote", "team")
        if said.status:
            yield str(said)

    def _leftovers(self) -> Iterator[str]:
        clean: tuple[tuple[Member, tuple[str | Path, ...]], ...] = (
            (self.member, ("doctor", self.stage.folder / "work")),
            (self.member, ("gc", *NOW)),
            (self.stage.ada, ("gc", "--remote", "team", *NOW)),
        )
        if self.writer.name == "remote add":
            clean = (*clean, (self.member, ("gc", "--remote", "spare", *NOW)))
        for member, args in clean:
            said = member.run(*args)
            if said.status:
                yield str(said)
        for name in self.folders:
            for path in files(self.stage.folder / name):
                key = path.relative_to(self.stage.folder).as_posix()
                if _UNFINISHED.search(key):
                    yield f"{key} is left after doctor and gc"
        yield from self._damage()


def world_of(stage: Stage) -> dict[str, bytes]:
    """Everything that commands may change."""
    for name in ("work", "carol"):
        (stage.folder / name).mkdir(exist_ok=True)
    stage.fresh()
    names = ("ada", "bob", "carol", "work", "remote")
    return {f"{name}/{key}": data for name in names for key, data in contents(stage.folder / name).items()}
