"""Scripts that torchrun runs in several processes, each of which writes what it has seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

from tests.repository import ROOT

_SECONDS = 300
_RESULTS = "results.json"


def in_processes(script: str, directory: Path, count: int, **variables: str) -> list[dict[str, Any]]:
    """Run a script, which ends with :func:`write_results`, in so many processes; returns what each wrote.

    Args:
        script: its path in the repository.
        directory: its one argument.
        count: processes.
        variables: of its environment.
    """
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*torchrun, str(ROOT / script), str(directory)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results: list[dict[str, Any]] = json.loads((directory / _RESULTS).read_text())
    assert len(results) == count
    return results


def write_results(directory: Path, result: dict[str, Any]) -> None:
    """Write what every process has seen, and leave the group of processes."""
    import torch.distributed as dist

    results: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(results, result)
    if dist.get_rank() == 0:
        (directory / _RESULTS).write_text(json.dumps(results))
    dist.destroy_process_group()


def end_process() -> NoReturn:
    """End this process without shutting the interpreter down, in which a thread of Gloo may abort it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
