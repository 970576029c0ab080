"""Scripts that several processes run together, as torchrun runs them; each process writes what it has seen."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.repository import ROOT
from tests.servers import free_ports

_SECONDS = 300
_RESULTS = "results.json"


def in_processes(programs: Path, script: str, directory: Path, count: int, **variables: str) -> list[dict[str, Any]]:
    """Run a script, which ends with :func:`write_results`, in so many processes; returns what each wrote.

    Args:
        programs: the folder of a Python that has imported torch, see :mod:`tests.warm`.
        script: its path in the repository.
        directory: its one argument.
        count: processes.
        variables: of its environment.
    """
    (port,) = free_ports(1)
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            [programs / "python", script, directory],
            cwd=ROOT,
            env={**os.environ, **group, "RANK": rank, "LOCAL_RANK": rank, **variables},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in map(str, range(count))
    ]
    said = [process.communicate(timeout=_SECONDS)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * count, said
    results: list[dict[str, Any]] = json.loads((directory / _RESULTS).read_text())
    return results


def write_results(directory: Path, result: dict[str, Any]) -> None:
    """Write what every process has seen, and leave the group of processes."""
    import torch.distributed as dist

    results: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(results, result)
    if dist.get_rank() == 0:
        (directory / _RESULTS).write_text(json.dumps(results))
    dist.destroy_process_group()
