"""Replicas: which version of a run each of its followers has, as far as they said so lately.

A follower names itself and its version when it waits for the tag to move (:mod:`maskreg.service.moves`), so nothing
else is sent::

    request     a replica's name and version       -> the memory of a process, for SILENCE_S
    observer    every LOOK_S                        the memory -> a file that the other processes of the server read
                                                    the newest runs and their replicas -> metrics
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from cachetools import LRUCache, TTLCache

from maskreg.catalog.query import Query
from maskreg.digest import Digest
from maskreg.disk import replacing
from maskreg.ref import Ref
from maskreg.service import observing
from maskreg.service.background import Background
from maskreg.service.context import Service
from maskreg.store.reflog import RefEntry
from maskreg.workspace.verbs.replicas import behind
from maskreg.workspace.verbs.runs import recent_runs

SILENCE_S = 120.0
"""How long a replica is remembered that says nothing, in seconds; one that serves asks twice a minute."""

MOST_RUNS, MOST_REPLICAS = 64, 1024
"""Runs whose replicas are remembered, and replicas of each; beyond, what was heard from least recently goes."""

MOST_ENTRIES = 256
"""Entries of a tag's log that are read to count how far replicas are behind."""

DELTAS = 256
"""Deltas, the newest ones, among which runs are looked for to become metrics; :data:`MOST_RUNS` at most."""

LOOK_S = 10.0
"""How often metrics of runs, and what processes tell each other, are brought up to date, in seconds."""

_SUFFIX = ".replicas.json"


@dataclass(frozen=True)
class RunReplica:
    """A replica of a run.

    Attributes:
        name: what it calls itself.
        digest: the version that it said it has.
        silent_s: seconds since it said so.
        behind: how many newer versions the tag has had, as far as entries were read.
        meta: what the publisher said about its version, such as the step.
    """

    name: str
    digest: Digest
    silent_s: float
    behind: int
    meta: Mapping[str, str]


class Replicas:
    """What followers said to this process, and to others that share a folder. Safe to use from many threads."""

    def __init__(self, folder: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock, self._lock = folder, clock, threading.Lock()
        self._said: LRUCache[Ref, TTLCache[str, tuple[Digest, float]]] = LRUCache(MOST_RUNS)

    def note(self, ref: Ref, name: str, digest: Digest) -> None:
        """Remember what a replica said just now."""
        with self._lock:
            of_run = self._said.setdefault(ref, TTLCache(MOST_REPLICAS, SILENCE_S, self._clock))
            of_run[name] = digest, self._clock()

    def share(self) -> None:
        """Tell the other processes, if there are any."""
        if self._folder:
            with self._lock:
                said = {str(ref): dict(of_run) for ref, of_run in self._said.items()}
            with replacing(Path(self._folder) / f"{os.getpid()}{_SUFFIX}", sync=False) as file:
                file.write(json.dumps(said).encode())

    def of(self, service: Service, ref: Ref) -> tuple[RunReplica, ...]:
        """The replicas of a run, the one that is furthest behind first."""
        with self._lock:
            now, said = self._clock(), dict(self._said.get(ref, {}))
        for path in Path(self._folder).glob(f"*{_SUFFIX}") if self._folder else ():
            for name, (digest, at) in json.loads(path.read_bytes()).get(str(ref), {}).items():
                if at > max(now - SILENCE_S, said.get(name, ("", 0.0))[1]):
                    said[name] = Digest(digest), at
        head = service.registry.refs.head(ref) if said else None
        if head is None:
            return ()
        entries = [head]
        if any(digest != head.digest for digest, _ in said.values()):
            entries = [entry for entry in islice(service.registry.refs.back(head), MOST_ENTRIES) if entry.digest]
        found = [_replica(name, digest, now - at, entries) for name, (digest, at) in said.items()]
        return tuple(sorted(found, key=lambda each: (-each.behind, each.name)))


def _replica(name: str, digest: Digest, silent_s: float, entries: Sequence[RefEntry]) -> RunReplica:
    count, own = behind(entries, digest)
    return RunReplica(name, digest, silent_s, count, {} if own is None else own.card.meta)


def furthest(replicas: Sequence[RunReplica]) -> int:
    """By how many versions the last of these replicas is behind; 0 without any."""
    return max((each.behind for each in replicas), default=0)


class RunsObserver(Background):
    """A thread that keeps the metrics of the newest runs up to date."""

    name = "runs"
    trouble = "the metrics of runs are late"

    def __init__(self, service: Service, replicas: Replicas) -> None:
        super().__init__(LOOK_S)
        self._service, self._replicas = service, replicas
        self._shown: set[str] = set()

    def turn(self) -> None:
        """Share what is known, and look at the newest runs."""
        self._replicas.share()
        service = self._service
        page = recent_runs(Query(limit=DELTAS), **service.here)
        runs = {}
        for run in page.names[:MOST_RUNS]:
            replicas = self._replicas.of(service, run.ref)
            age_s = (datetime.now(UTC) - run.at).total_seconds()
            runs[str(run.ref)] = age_s, len(replicas), furthest(replicas)
        observing.show_runs(runs, self._shown - runs.keys())
        self._shown = set(runs)
