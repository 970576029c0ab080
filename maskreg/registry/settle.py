"""Naming an artifact while a garbage collection might be about to delete it, without a lock.

Push (also pull, import, tag, restore) and collection each write a flag before they read the other's::

    push                                     collect
    1 wait until there is no marker          1 find artifacts without a ref, all objects older than the grace period
    2 write missing objects                  2 write the marker
    3 write the manifest (a fresh time)      3 list refs and objects again:
      refused, and it is there? go on          named now, or anything newer?   lift the marker, spare it
    4 a marker, or an object missing?
      start over at 1                        4 delete the manifest, the objects, the marker
    5 write the ref
    6 the same look as 4; start over at 1, without 5

In a strongly consistent store at least one side sees the other. If push's manifest (3) comes before collect's second
listing (3), collect sees the fresh time and spares the artifact. Otherwise collect's marker (2) came before push's
look (4), so push sees the marker or, when it is lifted already, the holes.

For example, push reuses all objects of an old, unnamed artifact::

    collect: finds it, writes the marker, lists again: unchanged
    push:    writes the manifest, sees the marker, waits
    collect: deletes manifest and objects, lifts the marker
    push:    starts over: everything is missing, uploads it, no marker, complete, writes the ref

Step 6 is for a collection without a grace period, which a fresh time does not stop: it can take the artifact for a
candidate after 3, mark it after 4 and list the refs before 5. For the same reason an artifact that is whole can be
named, or found to be named, where its manifest must not be written again: its grace period is then not extended.

A stale listing shows holes, and can hide markers. So what it lacks is read directly. It is there: after a few more
looks push gives up rather than upload everything again. It is not there: a collection has deleted it, and push starts
over.

**Markers** of garbage collections, and how a dead collection's are told from a living one's.

A collection keeps one record, ``gc/runs/<run>.json``, as long as it has markers, ``doomed/sha256/<hex>/<run>``. A
marker is outside the artifact, whose prefix holds nothing else, and there is one for each collection, so that none
lifts another's::

    collection                                   a client that finds a marker
    write the record                             read the record of its run
    write markers, look again, delete              none                        the run is over
      before each request:                         its process has ended       over (same machine), after IN_FLIGHT_S
        renewed over LIFE / 2 ago?  stop           renewed over LIFE ago       over
        renewed over LIFE / 10 ago? renew          otherwise                   not over
    lift the markers                             over? lift the marker
    delete the record

Ages are by the store's clock for the finder, and by the collection's own clocks for itself: one that counts sleep,
and the wall clock, whichever says more. A renewal counts from before its request was sent, and only if the one before
was still good when the answer came, so no finder can have taken the run for dead in between.

Why a collection deletes nothing after another client has lifted its marker:

- Its process has ended: it sends nothing more. A request that was under way is given IN_FLIGHT_S to arrive.
- Its record is older than LIFE: the last renewal was sent before that, so it stopped sending LIFE / 2 ago. Requests
  are given up after about a minute, so no write is under way.
- A request failed, so that it might be under way although the run gave up: the run leaves the marker, and a record
  without a process, which only its age makes void.
- It was stopped and continues (Ctrl-Z, a closed lid, a paused container): the first thing that it does is the check
  before the next request, which fails, because both clocks went on. One gap is left: stopped for longer than LIFE after
  the check and before the request. Then this one request (of CHUNK objects at most) is sent. The collection checks
  again after it, sees that its marker is gone, and reports the artifact as one to verify.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.presence import listing, objects_of, read_manifest, whole_parts
from maskreg.digest import Digest, parse_sealed, sealed
from maskreg.disk import is_alive
from maskreg.errors import DataError, MaskregError, NotAllowedError, NotFoundError, TryAgainError
from maskreg.progress import SILENT, Progress
from maskreg.store.base import Store
from maskreg.store.chain import ASK, looks, not_listed

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Object


PATIENCE_S = 60.0
"""How long to wait for a garbage collection that looks at the same artifact, in seconds."""

_ROUNDS = 4
_SAMPLE = 8
_POLL_S = 0.5


class Settling:
    """An artifact that gets a name in the ``with`` block, whole, even while garbage is collected.

    The numbers are the steps of the module's text::

        with Settling(...):      1 to 4
            ...                  5: write the ref
                                 6
    """

    def __init__(
        self,
        store: Store,
        digest: Digest,
        manifest: bytes,
        needed: Collection[Object],
        bring: Callable[[], None],
        progress: Progress = SILENT,
    ) -> None:
        """Nothing is written yet."""
        self._store, self._digest, self._manifest, self._bring = store, digest, manifest, bring
        self._progress = progress
        self._sizes = {MANIFEST: len(manifest), **{entry.key: entry.size for entry in needed}}
        self._deadline = time.monotonic() + PATIENCE_S
        # One iterator for both ends of the block: leaving it has the rounds that entering left.
        self._rounds = iter(range(_ROUNDS))
        self._has_seen_marker = False

    def make_whole(self) -> None:
        """Bring what is missing, and wait for collections that look at the artifact."""
        for _ in self._rounds:
            if _wait_for_markers(self._store, self._digest, self._deadline, self._progress):
                self._has_seen_marker = True
            self._bring()
            self._renew()
            if self._is_whole():
                return
        raise _keeps_disappearing(self._store, self._digest, marked=self._has_seen_marker)

    def __enter__(self) -> None:
        self.make_whole()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Look again after the ref was written."""
        if kind is None and not self._is_whole():
            self.make_whole()

    def _is_whole(self) -> bool:
        # The marker first: a collection that lifts it before the other look leaves holes, which that look sees.
        if any(True for _ in self._store.list(marker_prefix(self._digest))):
            self._has_seen_marker = True
            return False
        return is_listed(self._store, self._digest, self._sizes)

    def _renew(self) -> None:
        # A manifest that is there and must not be written again is left.
        key = artifact_prefix(self._digest) + MANIFEST
        try:
            self._store.put(key, self._manifest)
        except NotAllowedError:
            info = self._store.head(key)
            if info is None or info.size != len(self._manifest):
                raise
            if self._store.get(key, max_bytes=info.size) != self._manifest:
                raise


def in_place(store: Store, digest: Digest) -> Settling:
    """What names an artifact that is in a store already; each part that is present has to be complete."""
    data, manifest = read_manifest(store, digest)
    present = listing(store, digest)
    if MANIFEST not in present:
        # It has just been read.
        if not is_listed(store, digest, {MANIFEST: len(data)}):
            raise collected(store, digest)
        present = listing(store, digest)
    needed = objects_of(manifest, whole_parts(store, digest, manifest, present))
    looks_left = iter([False])

    def must_have() -> None:
        # The first time they have just been listed.
        if next(looks_left, True) and not is_listed(store, digest, {entry.key: entry.size for entry in needed}):
            raise collected(store, digest)

    return Settling(store, digest, data, needed, must_have)


def is_listed(store: Store, digest: Digest, sizes: Mapping[str, int]) -> bool:
    """Whether a store lists these objects of an artifact; looks again while it holds what it does not list."""
    for _ in looks():
        present = listing(store, digest)
        missing = [key for key in sizes if key not in present or present[key].size != sizes[key]]
        if not missing:
            return True
        # A few are enough: a collection deletes the manifest first, and all of them in the end.
        for key in missing[:_SAMPLE]:
            info = store.head(artifact_prefix(digest) + key)
            if info is None or info.size != sizes[key]:
                return False
    raise not_listed(store.url, artifact_prefix(digest) + missing[0])


def collected(store: Store, digest: Digest) -> MaskregError:
    """The error that objects of an artifact were there a moment ago and are not any more."""
    return TryAgainError(
        f"a garbage collection of {store.url} is deleting {digest.short}",
        hint="run the same command again; it succeeds, or says that the artifact was deleted",
    )


def _keeps_disappearing(store: Store, digest: Digest, *, marked: bool) -> TryAgainError:
    fault = f"objects of {digest.short} keep disappearing from {store.url}"
    if marked:
        hint = "wait for it to end, then run the same command again"
        return TryAgainError(f"{fault}: a garbage collection is running", hint=hint, marked=True)
    other = "something else deletes them, such as a lifecycle rule of the bucket"
    return TryAgainError(f"{fault}, and no garbage collection has marked them: {other}", hint=ASK, marked=False)


def _wait_for_markers(store: Store, digest: Digest, deadline: float, progress: Progress) -> bool:
    # Whether there was a marker.
    waited = False
    while markers := [info.key for info in store.list(marker_prefix(digest))]:
        verdicts = lift_dead(store, markers)
        if alive := [verdict for verdict in verdicts.values() if not verdict.over]:
            progress.start(" by ".join(filter(None, ("wait for a garbage collection", alive[0].who))), 0)
        left = deadline - time.monotonic()
        # What was lifted is looked for again at once, but not for ever: the listing can be stale.
        if left <= 0 and (alive or waited):
            raise _undecided(store, digest, alive)
        waited = True
        if alive:
            time.sleep(min(_POLL_S, left))
    return waited


def _undecided(store: Store, digest: Digest, alive: list[Verdict]) -> TryAgainError:
    hint = "run the same command again in a minute"
    if not alive:
        fault = f"{store.url} still lists a garbage collection's marker for {digest.short}, which was deleted"
        return TryAgainError(fault, hint=hint)
    who = f": {alive[0].who}" if alive[0].who else ""
    fault = f"a garbage collection of {store.url} is deciding about {digest.short}{who}"
    return TryAgainError(
        f"{fault}; if it died, its marker expires at {alive[0].until:%Y-%m-%d %H:%M:%S} UTC", hint=hint
    )


MARKERS = "doomed/sha256/"
"""Prefix of all markers."""

RUNS = "gc/runs/"
"""Prefix of the records of running collections."""

LIFE = timedelta(minutes=10)
"""Age of a record by which its collection has stopped deleting, or died."""

CHUNK = 64
"""Objects that are deleted between two checks."""

IN_FLIGHT_S = 3.0
"""How long a request of a process that was killed can still be under way, in seconds."""

_SCHEMA = "maskreg.gc-run/1"
_PROC = Path("/proc")
_STATE, _THREADS, _STARTED = 0, 17, 19
# Positions in /proc/PID/stat behind the process's name, which can hold spaces and brackets.
_MAX_BYTES = 64 << 10
# CLOCK_MONOTONIC stands still on Linux while the machine sleeps; elsewhere it goes on.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def marker_prefix(digest: Digest) -> str:
    """Prefix of the markers that collections write for an artifact."""
    return f"{MARKERS}{digest.hex}/"


class Run:
    """One collection's right to delete what it has marked; it ends with the ``with`` block."""

    def __init__(self, store: Store, by: str) -> None:
        self._store = store
        self._id = uuid.uuid4().hex
        self._key = f"{RUNS}{self._id}.json"
        self._by = by
        self._data = self._record(this_process())
        self._marked: set[str] = set()
        self._uncertain: set[str] = set()
        self._renewed = clocks()
        self._lapsed = False

    def __enter__(self) -> Run:
        self._renewed = clocks()
        self._store.put(self._key, self._data)
        return self

    def __exit__(self, *_: object) -> None:
        self._store.delete(sorted(self._marked - self._uncertain))
        if self._uncertain:
            # Only age can decide now, not the end of this process. If this fails too, its end decides.
            with suppress(MaskregError):
                self._store.put(self._key, self._record(None))
        else:
            # The record last: a marker without one would count as a dead collection's.
            self._store.delete([self._key])

    def mark(self, digest: Digest) -> None:
        """Write the artifact's marker."""
        key = marker_prefix(digest) + self._id
        # Before the request: a marker whose answer is lost has to be lifted too.
        self._marked.add(key)
        self._store.put(key, self._data)

    def lift(self, digest: Digest) -> None:
        """Delete the artifact's marker."""
        key = marker_prefix(digest) + self._id
        self._store.delete([key])
        self._marked.discard(key)

    @contextmanager
    def deleting(self, digest: Digest) -> Iterator[None]:
        """Keep the marker when a request in the block fails: it might still be under way."""
        try:
            yield
        except MaskregError:
            self._uncertain.add(marker_prefix(digest) + self._id)
            raise

    def has_marked(self, digest: Digest) -> bool:
        """Whether the marker is still there, and no client has taken this run for dead."""
        return self._store.head(marker_prefix(digest) + self._id) is not None

    def is_valid(self) -> bool:
        """Whether the run can send one more request that deletes; renews its record from time to time.

        Once this is False it stays False.
        """
        age = _seconds_since(self._renewed)
        if not self._lapsed and LIFE.total_seconds() / 10 < age <= LIFE.total_seconds() / 2:
            begun = clocks()
            self._store.put(self._key, self._data)
            age = _seconds_since(self._renewed)
            # An answer that came too late renews nothing: a client might have lifted the markers before it.
            if age <= LIFE.total_seconds() / 2:
                self._renewed = begun
        self._lapsed = self._lapsed or age > LIFE.total_seconds() / 2
        return not self._lapsed

    def _record(self, process: Mapping[str, object] | None) -> bytes:
        return sealed({"schema": _SCHEMA, "run": self._id, "by": self._by, "process": process})


@dataclass(frozen=True)
class Verdict:
    """Whether a run deletes nothing more (``over``), or can until ``until``, when its record expires.

    Of one that is ``draining``, whose process was killed, a last request can be under way for ``IN_FLIGHT_S``.
    """

    over: bool
    draining: bool = False
    who: str = ""
    until: datetime | None = None


def judge(store: Store, run: str) -> Verdict:
    """Whether the run is over, from its record; without a readable one the age of the record decides."""
    key = f"{RUNS}{run}.json"
    info = store.head(key)
    if info is None:
        return Verdict(over=True)
    who, until = "", info.modified + LIFE
    with suppress(DataError, NotFoundError, KeyError, TypeError, ValueError):
        row = parse_sealed(store.get(key, max_bytes=_MAX_BYTES), key, schema=_SCHEMA, max_bytes=_MAX_BYTES)
        by, process = str(row["by"]), row["process"]
        who = f"{by if by.isprintable() else '?'} (process {int(process['pid'])} on {process['host']!r})"
        if has_ended(process):
            return Verdict(over=True, draining=True, who=who, until=until)
    return Verdict(over=until < store.clock(), who=who, until=until)


def run_of(marker: str) -> str:
    """The run that wrote a marker, from its key."""
    return marker.rpartition("/")[2]


def lift_dead(store: Store, markers: Iterable[str]) -> dict[str, Verdict]:
    """Lift the markers of runs that are over."""
    by_run: dict[str, list[str]] = {}
    for key in markers:
        by_run.setdefault(run_of(key), []).append(key)
    verdicts = {run: judge(store, run) for run in by_run}
    if any(verdict.draining for verdict in verdicts.values()):
        time.sleep(IN_FLIGHT_S)
    store.delete([key for run, keys in by_run.items() if verdicts[run].over for key in keys])
    return verdicts


def take_over(store: Store) -> None:
    """Lift all markers of runs that are over, and delete their records."""
    # Judged before the markers are listed: a run that is over by now writes no more of them.
    records = [info.key for info in store.list(RUNS)]
    over = [key for key in records if judge(store, key.removeprefix(RUNS).removesuffix(".json")).over]
    lift_dead(store, [info.key for info in store.list(MARKERS)])
    store.delete(over)


def this_process() -> dict[str, object]:
    """The current process, named so that no other process on any machine is taken for it.

    ``boot`` is the machine's last start. ``namespace`` says in which its number and its start count: containers on one
    machine number their processes anew. Both are empty where the system does not tell.
    """
    pid, known = os.getpid(), dict[str, object](boot="", namespace="", started=0)
    with suppress(OSError):
        # A container can show the processes of another namespace in /proc, with other numbers.
        if (_PROC / "self").readlink() == Path(str(pid)):
            known["namespace"] = " ".join(str((_PROC / "self/ns" / name).readlink()) for name in ("pid", "time"))
            known["boot"] = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
            known["started"] = int(_stat(pid)[_STARTED])
    return {"host": socket.gethostname(), "pid": pid, **known}


def has_ended(process: Mapping[str, object]) -> bool:
    """Whether a process of this machine is known to have ended; False for other machines, boots and namespaces."""
    here, pid = this_process(), process["pid"]
    if not here["started"] or any(process[name] != here[name] for name in ("host", "boot", "namespace")):
        return False
    # Not isinstance, for which True is process 1; and kill(2) takes 0 and less for groups of processes.
    if type(pid) is not int or pid <= 0 or type(process["started"]) is not int:
        raise ValueError("not a process")
    try:
        fields = _stat(pid)
    except OSError:
        # The system can hide the processes of other users.
        return not is_alive(pid)
    # A process that its parent has not waited for yet counts as ended once none of its threads is left.
    is_zombie = fields[_STATE] in ("Z", "X") and int(fields[_THREADS]) <= 1
    return is_zombie or int(fields[_STARTED]) != process["started"]


def _stat(pid: int) -> list[str]:
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def clocks() -> tuple[float, float]:
    """Seconds by a clock that counts sleep, and by the wall clock."""
    return time.clock_gettime(_CLOCK), time.time()


def _seconds_since(start: tuple[float, float]) -> float:
    return max(now - then for now, then in zip(clocks(), start, strict=True))
