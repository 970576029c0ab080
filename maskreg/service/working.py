"""A worker apart from a server: takes the jobs that servers on the same database accept, on this machine or another."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

from maskreg.errors import UsageError
from maskreg.service.accounts.accounts import Accounts
from maskreg.service.jobs.processes import start_workers
from maskreg.service.observing.logs import configure
from maskreg.service.options import Options, bench_of, settings_of
from maskreg.workspace.workspace import Workspace


def work(options: Options, ready: Callable[[str], None]) -> None:
    """Work on jobs until SIGTERM or Ctrl-C; those that were begun are given back to the queue.

    Args:
        options: the registry and the folders, as those of the servers; the rest is ignored.
        ready: called once, with the registry's URL, before the first job is taken.

    Raises:
        MaskregError: it cannot work; as for :func:`maskreg.service.starting.open_service`.
    """
    settings, remote = settings_of(options)
    bench = bench_of(options, settings, remote)
    if bench is None or not options.jobs:
        raise UsageError("a worker works on one job at a time, or more", hint="maskreg worker --jobs 1")
    # What is wrong is said here, once, and not by each process again and again.
    with Workspace(settings) as space:
        registry = space.registry(remote)
        registry.check_format()
        registry.index.must_open()
        url = registry.url
    bench.open().queue.close()
    Accounts.open(bench.url).close()
    if options.log_format == "json":
        configure()
    leaving = threading.Event()

    def leave(number: int, frame: FrameType | None) -> None:
        leaving.set()

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with start_workers(bench, options.jobs):
            ready(url)
            leaving.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
