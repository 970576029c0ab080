"""Memory and CPU time of work on a whole registry, by its size; each size in a process of its own.

python -m scripts.bench.scale.collecting 10000 100000
python -m scripts.bench.scale.collecting --work rebuild 10000 100000

The kinds of work: ``collect`` garbage; ``rebuild`` a catalog in SQLite by listing the log, and ``refill`` it from the
snapshot that a collection left; ``audit`` the log as `maskreg verify --all` does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from maskreg.errors import CorruptError
from maskreg.registry import Registry
from maskreg.registry.audit.marks import Marks
from maskreg.registry.garbage.collect import collect
from maskreg.store.entry import REFS
from scripts.bench.scale.simulated import Simulated

ENTRIES = 10
GIVEN_UP = 200


def _collect(registry: Registry, folder: Path) -> None:
    report = collect(registry, timedelta(days=7))
    assert len(report.collected) == GIVEN_UP, len(report.collected)


def _rebuild(registry: Registry, folder: Path) -> None:
    rebuilt = registry.index.rebuild(full=True)
    assert not rebuilt.damaged, rebuilt.damaged[0]


def _refill(registry: Registry, folder: Path) -> None:
    rebuilt = registry.index.rebuild()
    assert not rebuilt.damaged, rebuilt.damaged[0]


def _audit(registry: Registry, folder: Path) -> None:
    damaged: list[CorruptError] = []
    with Marks(folder / "marks.db") as marks:
        for tag in registry.refs.walk(damaged, registry.store.list(REFS)):
            marks.put_tag(tag.folder.path, tag.listing, len(tag.folder.numbers), None, is_sound=tag.is_sound)
        assert marks.end_tags()[0] > 0
    assert not damaged, damaged[0]


WORK = {"collect": _collect, "rebuild": _rebuild, "refill": _refill, "audit": _audit}


def measured(work: str, artifacts: int) -> dict[str, object]:
    """Do it once; memory above what the simulated store takes, in MiB, and CPU time in seconds."""
    # The simulated entries of a tag are not linked, which would be damage for an audit.
    entries = 1 if work == "audit" else ENTRIES
    store = Simulated(artifacts, entries, GIVEN_UP)
    with TemporaryDirectory(prefix="maskreg-bench-") as name:
        folder = Path(name)
        # To fill a catalog is other work than to collect.
        catalog = "" if work == "collect" else f"sqlite:///{folder / 'catalog.db'}"
        registry = Registry(store, name="simulated", by="bench", catalog_url=catalog)
        registry.ensure_uuid()
        if work == "refill":
            collect(Registry(store, name="simulated", by="bench"), timedelta(days=7))
        # The highest that memory stood is counted anew from here.
        Path("/proc/self/clear_refs").write_text("5")
        before, cpu, asked = _memory("VmRSS"), time.process_time(), store.asked.copy()
        WORK[work](registry, folder)
        registry.close()
        return {
            "work": work,
            "artifacts": artifacts,
            "entries": artifacts * entries,
            "grew_mib": round(_memory("VmHWM") - before, 1),
            "cpu_s": round(time.process_time() - cpu, 1),
            "requests": dict(store.asked - asked),
        }


def _memory(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def main() -> None:
    """Measure each size that is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=sorted(WORK), default="collect")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("artifacts", type=int, nargs="+")
    options = parser.parse_args()
    for artifacts in options.artifacts:
        if options.one:
            print(json.dumps(measured(options.work, artifacts)))
            return
        command = [sys.executable, "-m", "scripts.bench.scale.collecting", "--one", "--work", options.work]
        result = subprocess.run([*command, str(artifacts)], check=True, capture_output=True, text=True)
        print(result.stdout.strip(), flush=True)


if __name__ == "__main__":
    main()
