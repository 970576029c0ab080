"""Scripts that several processes run together, as torchrun runs them; each process writes what it has seen.

``python -m tests.ranks SCRIPT DIRECTORY COUNT`` imports torch once and forks for each process.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

from tests.repository import ROOT
from tests.servers import free_ports

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
    done = subprocess.run(
        [sys.executable, "-m", "tests.ranks", script, str(directory), str(count)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results: list[dict[str, Any]] = json.loads((directory / _RESULTS).read_text())
    assert len(results) == count
    return results


def main(script: str, directory: str, count: str) -> int:
    """Run a script in each process; returns how many of them failed."""
    # Once, with all that every process would import when it first distributes a tensor.

    (port,) = free_ports(1)
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": count}
    children = []
    for rank in map(str, range(int(count))):
        if child := os.fork():
            children.append(child)
            continue
        os.environ.update(group, RANK=rank, LOCAL_RANK=rank)
        sys.argv = [script, directory]
        runpy.run_path(script, run_name="__main__")
        return 1
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


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


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
