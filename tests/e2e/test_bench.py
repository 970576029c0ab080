"""The benchmark runs, and memory stays where it should."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "bench_memory.py"
MAX_PEAK_RSS = 1_200_000_000


def test_a_small_run(tmp_path: Path) -> None:
    args: list[str | Path] = [sys.executable, SCRIPT, "--gigabytes", "0.03", "--json", "--dir", tmp_path]
    done = subprocess.run(args, check=True, capture_output=True, text=True)
    (run,) = json.loads(done.stdout)["runs"]
    assert run["gigabytes"] == 0.03
    assert 0.029e9 < 2 * run["params"] < run["bytes"] < 0.031e9
    assert 0.47 < run["density"] < 0.49
    assert 1 < run["bits_per_param"] < 16
    assert run["copy_seconds"] > 0
    for command in ("extract", "apply"):
        assert set(run[command]) == {"seconds", "gb_per_s", "of_copy", "peak_rss"}
        assert 0 < run[command]["peak_rss"] < MAX_PEAK_RSS
        assert run[command]["of_copy"] > 0
    assert list(tmp_path.iterdir()) == []


def test_memory_does_not_grow_with_the_checkpoint(tmp_path: Path) -> None:
    args: list[str | Path] = [sys.executable, SCRIPT, "--gigabytes", "0.4", "1.2", "--json", "--dir", tmp_path]
    done = subprocess.run(args, check=True, capture_output=True, text=True)
    small, large = json.loads(done.stdout)["runs"]
    for command in ("extract", "apply"):
        # The smaller one already fills every buffer and cache; runs of one size differ by some 5 %.
        assert large[command]["peak_rss"] < 1.12 * small[command]["peak_rss"]


def test_a_full_disk_is_noticed_first(tmp_path: Path) -> None:
    args: list[str | Path] = [sys.executable, SCRIPT, "--gigabytes", "1e9", "--dir", tmp_path]
    done = subprocess.run(args, capture_output=True, text=True)
    assert done.returncode == 1
    assert "--dir" in done.stderr
    assert list(tmp_path.iterdir()) == []
