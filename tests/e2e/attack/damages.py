"""Damages, one after another, in every kind of stored object; after each, every reader.

Each damage has a number, and follows from the seed and its number alone::

    scripts/attack damages --where folder --seed 1 --first 4711 --count 1     does number 4711 again
"""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from maskreg.store import FileStore, Store
from tests.damage import FORMS, Harm, harm
from tests.e2e.attack.judging import Answer, Reader, ask, local_readers, remote_readers, tokens, verdict, verifier
from tests.e2e.attack.people import Member
from tests.e2e.attack.stage import Stage, contents, kind_of, lay_out, stored

READERS = 2
"""How many commands read after each damage, besides ``verify``; drawn by the damage's number."""


UNSEALED = {"config", "pipe", "catalog", "seen", "tracked"}
"""Kinds that ``verify`` does not read, or whose damage can be without any effect."""

GUARDS = {"names", "gc"}
"""Kinds of which a missing object is no damage: it only takes away a check."""

INDEX = "another answer of an index that can be rebuilt"
"""Verdict on what is listed from a damaged catalog, which has no seals; what commands make is never read from it."""

OLDER = "older, which a new home cannot know"
"""Verdict on an answer that was right before the last change of a tag, whose entry is gone without a trace."""


@dataclass
class Tally:
    """Results of many attacks.

    Attributes:
        counts: how often each thing happened.
        faults: everything that must not happen, each with what does it again.
    """

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


class Damages:
    """Damages to ada's home (``remote`` False) or to the remote."""

    def __init__(self, stage: Stage, *, remote: bool, only: Collection[str] = ()) -> None:
        self.stage = stage
        self.remote = remote
        self.store: Store = stage.site.store() if remote else FileStore(stage.ada.home)
        self.sound = stored(self.store)
        self.homes = {member.home: contents(member.home) for member in (stage.ada, stage.bob)}
        self.by_kind: dict[str, list[str]] = defaultdict(list)
        for key in self.sound:
            if not only or kind_of(key) in only:
                self.by_kind[kind_of(key)].append(key)
        self.names: dict[str, list[str]] = defaultdict(list)
        for row in stage.ada.must("list", "--json").json["names"]:
            self.names[row["digest"]].append(row["ref"])
        self.verify = verifier(remote)
        self.readers = [*(remote_readers(stage) if remote else local_readers(stage)), self.verify]
        self.usual: dict[Reader, Answer] = {}

    def draw(self, rng: random.Random) -> Harm:
        """A damage; every kind of object is as likely as any other."""
        drawn = None
        while drawn is None:
            kind = rng.choice(sorted(self.by_kind))
            key = rng.choice(self.by_kind[kind])
            form = rng.choice([*FORMS, *(["stray"] if kind in ("refs", "chunks", "files") else [])])
            peers = [peer for peer in self.by_kind[kind] if peer != key]
            drawn = harm(self.sound, key, form, rng, peers=peers, older=self.stage.older.get(key, []))
            drawn = None if drawn and self._is_tidying(drawn) else drawn
        return drawn

    def run(self, seed: int, number: int, tally: Tally) -> None:
        """Do one damage, read everything, and mend it."""
        rng = random.Random(f"{seed}/{number}")
        damage = self.draw(rng)
        kind = kind_of(min(damage.changes))
        names = tokens(damage.changes, self.names)
        readers = [*rng.sample(self.readers[:-1], READERS), self.verify]
        for reader in readers:
            if reader not in self.usual:
                self.usual[reader] = self._usual(reader)
        self.apply(damage.changes)
        for reader in readers:
            answer = self.answer(reader, damage)
            # What was added to an artifact by the damage was not made by the reader.
            own = {key: digest for key, digest in (answer.effect or {}).items() if not key.endswith("/stray")}
            answer = replace(answer, effect=own if answer.effect else answer.effect)
            result = verdict(self.usual[reader], answer, names)
            if reader.who == "carol" and self._is_rollback(damage) and result.startswith("silent"):
                result = OLDER
            if kind == "catalog" and result == "silent: another answer":
                result = INDEX
            tally.counts[f"{kind}: {result}"] += 1
            if result not in ("same", "noted", "refused", OLDER, INDEX):
                tally.faults.append(f"{damage}: {reader.name} ({reader.who}): {result}\n{answer.said}")
        guard = kind in GUARDS and None in damage.changes.values()
        if kind not in UNSEALED and not guard and answer.said.status == 0:
            tally.faults.append(f"{damage}: verify sees nothing")
        self.mend(damage.changes)

    def _usual(self, reader: Reader) -> Answer:
        usual = self.answer(reader)
        assert usual.said.status == 0, usual.said
        assert verdict(usual, self.answer(reader), set()) == "same", f"{usual.said}\ndiffers from run to run"
        return usual

    def _is_tidying(self, damage: Harm) -> bool:
        """Whether it removes the manifest of an artifact that has no name: what is left is garbage, not damage."""
        (key, data), *_ = damage.changes.items()
        artifact = re.search(r"artifacts/sha256/([0-9a-f]{64})/manifest\.json", key)
        return data is None and artifact is not None and f"sha256:{artifact[1]}" not in self.names

    def _is_rollback(self, damage: Harm) -> bool:
        """Whether the latest entry of a tag on the remote is removed: what is left was the truth once."""
        (key, data), *more = damage.changes.items()
        folder = key.rpartition("/")[0]
        latest = max((k for k in self.sound if k.startswith(f"{folder}/")), default="")
        return self.remote and kind_of(key) == "refs" and data is None and not more and key == latest

    def answer(self, reader: Reader, damage: Harm | None = None) -> Answer:
        """Run a reader in a home as it is before each damage; ada's has the damage when it is the one attacked."""
        member = self.member(reader, damage)
        if reader.makes is not None and reader.makes.is_relative_to(self.stage.folder / "made"):
            shutil.rmtree(reader.makes, ignore_errors=True)
        return ask(reader, member)

    def member(self, reader: Reader, damage: Harm | None) -> Member:
        """Whose command it is, with the home as it was."""
        if reader.who == "carol":
            return self.stage.fresh()
        member = self.stage.ada if reader.who == "ada" else self.stage.bob
        objects = self.homes[member.home]
        if damage is not None and not self.remote and member is self.stage.ada:
            objects = _changed(objects, damage.changes)
        lay_out(member.home, objects)
        return member

    def apply(self, changes: Mapping[str, bytes | None]) -> None:
        """Write the damage."""
        self.store.delete([key for key, data in changes.items() if data is None])
        for key, data in changes.items():
            if data is not None:
                self.store.put(key, data)

    def mend(self, changes: Mapping[str, bytes | None]) -> None:
        """Write the sound objects again."""
        if not self.remote:
            lay_out(self.stage.ada.home, self.sound)
            return
        self.apply({key: self.sound.get(key) for key in changes})


def _changed(objects: Mapping[str, bytes], changes: Mapping[str, bytes | None]) -> dict[str, bytes]:
    merged = {**objects, **changes}
    return {key: data for key, data in merged.items() if data is not None}
