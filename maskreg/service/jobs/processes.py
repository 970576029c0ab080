"""Workers as processes: started, started again when they crash, and told to leave."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import subprocess
import sys
import threading
from types import TracebackType
from typing import Self

from maskreg.errors import MaskregError
from maskreg.service.jobs.bench import Bench
from maskreg.service.jobs.sql import SqlJobQueue

LEAVE_S = 20.0
"""How long workers may take to give their jobs back, in seconds; then they are killed."""

RESTART_S = 1.0
"""How long to wait before a worker that ended is started again, in seconds."""

_log = logging.getLogger("maskreg.jobs")


class Workers:
    """So many workers, each a process that ends with this one."""

    def __init__(self, bench: Bench, count: int) -> None:
        """Start them.

        Args:
            bench: what they work for.
            count: how many.
        """
        self._bench = bench
        self._leaving = threading.Event()
        self._threads = [threading.Thread(target=self._keep, name=f"worker-{n}") for n in range(count)]
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._lock = threading.Lock()
        for thread in self._threads:
            thread.start()

    @property
    def pids(self) -> list[int]:
        """The processes that run now."""
        with self._lock:
            return [process.pid for process in self._processes.values()]

    def close(self) -> None:
        """Let every worker give its job back, and wait until all have ended."""
        with self._lock:
            self._leaving.set()
            for process in self._processes.values():
                process.terminate()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _keep(self) -> None:
        """Keep one worker running."""
        while not self._leaving.is_set():
            name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
            process = self._start(name)
            if process is None:
                return
            status = self._end_of(process)
            with self._lock:
                del self._processes[name]
            if self._leaving.is_set():
                return
            _log.error("worker %s ended with %d, and is started again", name, status)
            try:
                self._abandon(name)
            except MaskregError as error:
                _log.error("what worker %s held is free when its lease runs out: %s", name, error)
            self._leaving.wait(RESTART_S)

    def _abandon(self, name: str) -> None:
        queue = SqlJobQueue.open(self._bench.url)
        try:
            queue.abandon(name)
        finally:
            queue.close()

    def _start(self, name: str) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._leaving.is_set():
                return None
            # No file descriptor of this process is inherited, so the worker's standard input ends with it.
            command = [sys.executable, "-m", "maskreg.service.jobs.worker", name]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
            self._processes[name] = process
            assert process.stdin is not None  # a pipe
            process.stdin.write(f"{self._bench.dumps()}\n")
            process.stdin.flush()
            return process

    def _end_of(self, process: subprocess.Popen[str]) -> int:
        waited = 0.0
        with process:
            while True:
                try:
                    return process.wait(timeout=RESTART_S)
                except subprocess.TimeoutExpired:
                    waited += RESTART_S if self._leaving.is_set() else 0.0
                    if waited > LEAVE_S:
                        process.kill()


def start_workers(bench: Bench, count: int) -> Workers:
    """Start so many processes that work on the jobs of a server; close what is returned to end them.

    Args:
        bench: the server.
        count: how many jobs are worked on at the same time.
    """
    return Workers(bench, count)
