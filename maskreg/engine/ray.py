"""Workers on a Ray cluster: one actor per CPU, which keeps a work and is sent tasks batch by batch.

::

    driver      draws tasks, hands out batches, yields results in order        Window decides which batch goes where
    worker      unpickles the work once: opens what it reads, by name          Worker, in maskreg.engine.worker
                works on a batch, leaves the outcome in its node's memory
    driver      has it in its own node's memory, and takes it in its turn

Coded blocks and counts come back; tensors stay where they were read. A worker that dies is replaced, and its batches
are handed out again. Actors are not restarted by Ray itself: it knows neither order nor what was taken already.

Ray ends a process whose cluster has been away for a minute: at once, with no chance to clean up. So the engine notices
earlier: a connection to the head's port costs the head next to nothing.
"""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray import cloudpickle
from ray._private.utils import read_ray_address
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from maskreg.engine.window import Batch, Window
from maskreg.engine.worker import Outcome, Packed, Worker
from maskreg.errors import ConfigError, UnavailableError, UsageError, WorkerError
from maskreg.parallel import available_cpus
from maskreg.version import __version__

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

MAX_BYTES = 512 << 20
"""Results that wait to be taken, in the memory of the cluster."""

STORE_BYTES = 1 << 30
"""Memory for results of a cluster that is started here, on this machine alone."""

ATTEMPTS = 3
"""Workers that die with a batch before the batch counts as the cause."""

PATIENCE_SECONDS = 120
"""How long the first worker may take to start, and a fetch of results."""

_POLL_SECONDS = 1.0  # how often a wait looks for signals


AWAY_SECONDS = 15
"""How long a head may be away in the middle of a run: a quick restart of it passes, and a minute is far."""

_FIRST_SECONDS = 10

_ANSWER_SECONDS = 5

_PAUSE_SECONDS = 1.0


def require_answer(address: str) -> None:
    """Refuse an address where nothing listens; Ray itself would try it for minutes.

    ``address``: ``HOST:PORT``, or ``ray://HOST:PORT``.
    """
    try:
        _connect(address, _FIRST_SECONDS)
    except (OSError, ValueError) as error:
        raise UnavailableError(f"{address}: no Ray cluster answers", hint="ray status tells which run") from error


class Head:
    """The head of a cluster in use."""

    def __init__(self, address: str) -> None:
        """It has just answered. ``address``: ``HOST:PORT``."""
        self._address = address
        self._asked_at = time.monotonic()

    def check(self) -> None:
        """Call :meth:`require`, when the last time was a second ago."""
        if time.monotonic() - self._asked_at >= _PAUSE_SECONDS:
            self.require()

    def require(self) -> None:
        """Return when the head answers: at once, or when it is back."""
        began_at = time.monotonic()
        while True:
            try:
                _connect(self._address, _ANSWER_SECONDS)
                break
            except OSError as error:
                if time.monotonic() - began_at >= AWAY_SECONDS:
                    raise UnavailableError(
                        f"the Ray cluster at {self._address} does not answer any more",
                        hint="see whether it runs, with ray status, and start the command again",
                    ) from error
            time.sleep(_PAUSE_SECONDS)
        self._asked_at = time.monotonic()


def _connect(address: str, seconds: float) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()


class _Actor(Worker):
    """Has a name by which tools of the cluster show what runs."""


@dataclass(eq=False)
class _Hand:
    """A worker, as the driver has it; ``number`` is of the work that was sent to it last."""

    actor: Any
    ready: Any
    number: int = -1


class RayEngine:
    """An :class:`~maskreg.engine.Engine`. Nothing is started before the first task is handed out."""

    def __init__(self, address: str = "", *, workers: int = 0, label: str = "maskreg") -> None:
        """Remember what to start.

        ``address``: ``HOST:PORT`` of the cluster's Ray client server; empty for the cluster of ``RAY_ADDRESS``, or the
        one that ``ray start`` began on this machine, or else one that is started here and ends with the engine;
        ``RAY_ADDRESS=local`` always starts one. ``workers``: processes; 0 for one per CPU of the cluster.
        """
        self._address, self._workers, self._label = address, workers, label
        self._starting: list[_Hand] = []
        self._ready: list[_Hand] = []
        self._numbers, self._names = itertools.count(), itertools.count()
        self._connected = False
        self._head: Head | None = None

    def ordered(
        self, work: Callable[[TaskT], ResultT], drawn: Iterable[tuple[Sequence[TaskT], str]]
    ) -> Generator[ResultT, None, None]:
        """Call ``work`` on every task on the workers; see :meth:`maskreg.engine.Engine.ordered`."""
        try:
            # It takes functions within functions too.
            pickled = cloudpickle.dumps(work)  # type: ignore[no-untyped-call]
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise UsageError(
                f"workers of a cluster cannot do this: {error}", hint="run it on this machine: --engine threads"
            ) from error
        self._start()
        run = _Run(self, next(self._numbers), pickled, Window(MAX_BYTES, self._ready))
        window, is_done = run.window, False
        try:
            for batch in drawn:
                window.add(Batch[_Hand](*batch))
                run.hand_out()
                while not window.has_room():
                    yield from run.next_results()
            while window:
                yield from run.next_results()
            is_done = True
        finally:
            if not is_done:
                # What still runs must end before the clean-up.
                self._kill()

    def close(self) -> None:
        """End the workers, and the connection if it was made here."""
        self._kill()
        if self._connected:
            self._connected, self._head = False, None
            ray.shutdown()

    def events(self, running: list[Any], seconds: float) -> list[Any]:
        """Batches that are finished, after a wait for the first; workers that are ready are taken in."""
        if self._head is not None:
            self._head.check()
        starting = {hand.ready: hand for hand in self._starting}
        if not (waiting := [*running, *starting]):
            return []
        with _signals_kept():
            done, _ = ray.wait(waiting, num_returns=1, timeout=seconds)
            if done:
                done, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
            for ready in done:
                if (hand := starting.get(ready)) is not None:
                    self._take_in(hand)
        return [ticket for ticket in done if ticket not in starting]

    def replace(self, hand: _Hand) -> None:
        """Start another worker for one that died."""
        if hand in self._ready:
            self._ready.remove(hand)
            ray.kill(hand.actor)
            self._starting.append(self._started())

    def _start(self) -> None:
        if not ray.is_initialized():
            with _signals_kept():
                self._connect()
            self._connected = True
        if self._head is None and not _is_remote():
            self._head = Head(ray.get_runtime_context().gcs_address)
        if self._starting or self._ready:
            return
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        cpus = int(sum(node["Resources"].get("CPU", 0) for node in nodes if node["Alive"]))
        self._starting = [self._started() for _ in range(self._workers or max(1, cpus))]
        waited = 0.0
        while not self._ready:
            self.events([], _POLL_SECONDS)
            waited += _POLL_SECONDS
            if waited > PATIENCE_SECONDS and not self._ready:
                self._kill()
                raise UnavailableError(
                    f"no worker started within {PATIENCE_SECONDS} s: the cluster has no free CPU", hint="ray status"
                )

    def _connect(self) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "namespace": "maskreg"}
        address = f"ray://{self._address}" if self._address else os.environ.get("RAY_ADDRESS", "")
        if address and address != "local":
            require_answer(address)
        elif not address:
            address = _running_here()
        if address and address != "local":
            with _connecting(address):
                ray.init(address, **quiet)
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(
            "local",
            num_cpus=self._workers or available_cpus(),
            object_store_memory=STORE_BYTES,
            include_dashboard=False,
            **quiet,
        )

    def _started(self) -> _Hand:
        if self._head is not None:
            self._head.require()  # a call that has no time limit comes next
        name = f"{self._label} {os.getpid()}/{next(self._names)}"
        actor_class: Any = ray.remote(num_cpus=1, max_restarts=0)(_Actor)
        actor = actor_class.options(name=name).remote()
        return _Hand(actor, actor.version.remote())

    def _take_in(self, hand: _Hand) -> None:
        self._starting.remove(hand)
        try:
            version = ray.get(hand.ready)
        except RayTaskError as error:
            raise ConfigError(
                f"a worker cannot start: {error.cause}", hint=f"install maskreg {__version__} on every node"
            ) from error
        except RayError:
            self._starting.append(self._started())
            return
        if version != __version__:
            raise ConfigError(
                f"a node of the cluster has maskreg {version}, and this is {__version__}",
                hint=f"install maskreg {__version__} on every node",
            )
        self._ready.append(hand)

    def _kill(self) -> None:
        if ray.is_initialized():
            for hand in (*self._starting, *self._ready):
                ray.kill(hand.actor)
        self._starting.clear()
        self._ready.clear()


class _Run:
    """One pass over tasks: what of :meth:`RayEngine.ordered` is about the cluster."""

    def __init__(self, engine: RayEngine, number: int, work: bytes, window: Window[_Hand]) -> None:
        self.window = window
        self._engine, self._number, self._work = engine, number, work

    def hand_out(self) -> None:
        """Send batches to workers that are not behind."""
        for batch in self.window.to_hand_out():
            assert batch.worker is not None
            if batch.worker.number != self._number:
                batch.worker.number = self._number
                batch.worker.actor.take_work.remote(self._work)
            batch.ticket = batch.worker.actor.run.remote(pickle.dumps(batch.tasks))

    def next_results(self) -> Iterator[Any]:
        """Wait until something happens; when the first batch is finished, its results, or the error that ended it."""
        front = self.window.front
        self._wait(_POLL_SECONDS if front.packed is None else 0)
        if front.packed is None:
            return
        self.window.take()
        self.hand_out()
        outcome: Outcome = front.packed.value()
        yield from outcome.results
        if outcome.error is not None:
            raise outcome.error

    def _wait(self, seconds: float) -> None:
        tickets = {batch.ticket: batch for batch in self.window.running()}
        done = set(self._engine.events(list(tickets), seconds))
        # In order: what a worker has finished before it died is kept, and not counted as what killed it.
        for batch in (tickets[ticket] for ticket in tickets if ticket in done):
            packed = self._get(batch)
            if packed is not None:
                self.window.finish(batch, packed)
        self.hand_out()

    def _get(self, batch: Batch[_Hand]) -> Packed | None:
        """What became of a batch; None when that is lost, and the batch is handed out again."""
        hand = batch.worker
        if hand is None:  # its worker died a moment ago, with several batches
            return None
        try:
            with _signals_kept():
                packed: Packed = ray.get(batch.ticket, timeout=PATIENCE_SECONDS)
            return packed
        except RayTaskError as error:
            raise WorkerError(f"a worker failed: {error.cause}") from error
        except GetTimeoutError as error:
            raise UnavailableError("a node of the cluster does not answer", hint="ray status") from error
        except RayError as error:
            lost = self.window.lose(hand)
            lost[0].deaths += 1
            if lost[0].deaths == ATTEMPTS:
                raise WorkerError(
                    f"{ATTEMPTS} workers died with the same work ({type(error).__name__})",
                    hint="give workers more memory, or look into the logs of the cluster: ray logs",
                ) from error
            self._engine.replace(hand)
            return None


def _is_remote() -> bool:
    """Whether this process is joined by the Ray client, which gives up by itself and ends no process."""
    is_connected: bool = ray.util.client.ray.is_connected()  # type: ignore[no-untyped-call]
    return is_connected


def _running_here() -> str:
    """Address of the cluster that ``ray start`` began on this machine; empty where none runs.

    Not what Ray calls "auto": that takes any cluster that it finds, such as the own one of another command, which ends
    with that command.
    """
    address = read_ray_address() or ""
    # The address of a cluster that was killed is still written down.
    with suppress(UnavailableError):
        if address:
            require_answer(address)
            return address
    return ""


@contextmanager
def _connecting(address: str) -> Iterator[None]:
    """Report what keeps this process from a cluster that answers."""
    try:
        yield
    except (ConnectionError, RuntimeError, RayError) as error:
        ray.shutdown()
        text = f"{address}: {' '.join(str(error).split())}"
        if "ersion mismatch" in text:
            raise ConfigError(text, hint="install the cluster's versions of Python and Ray here") from error
        raise UnavailableError(text, hint="ray status tells which run") from error


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep how this process ends on SIGTERM.

    Ray takes the signal over when it connects, and replaces the exit code of a handler that is called while it waits.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:
        signal.signal(signal.SIGTERM, handler)
        signal.raise_signal(signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, handler)
