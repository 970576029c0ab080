"""Memory of a garbage collection, by the size of the registry; each size in a process of its own.

python -m scripts.bench.scale.collecting 10000 100000
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

from maskreg.registry import Registry
from maskreg.registry.garbage.collect import collect
from scripts.bench.scale.simulated import Simulated

ENTRIES = 10
GIVEN_UP = 200


def measured(artifacts: int) -> dict[str, float]:
    """Collect once; memory above what the simulated store takes, in MiB, and CPU time in seconds."""
    store = Simulated(artifacts, ENTRIES, GIVEN_UP)
    registry = Registry(store, name="simulated", by="bench")
    # The highest that memory stood is counted anew from here.
    Path("/proc/self/clear_refs").write_text("5")
    before, cpu = _memory("VmRSS"), time.process_time()
    report = collect(registry, timedelta(days=7))
    assert len(report.collected) == GIVEN_UP, len(report.collected)
    return {
        "artifacts": artifacts,
        "entries": artifacts * ENTRIES,
        "collected": len(report.collected),
        "grew_mib": round(_memory("VmHWM") - before, 1),
        "cpu_s": round(time.process_time() - cpu, 1),
    }


def _memory(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def main() -> None:
    """Measure each size that is named."""
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measured(int(sys.argv[2]))))
        return
    for artifacts in sys.argv[1:]:
        command = [sys.executable, "-m", "scripts.bench.scale.collecting", "--one", artifacts]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip(), flush=True)


if __name__ == "__main__":
    main()
