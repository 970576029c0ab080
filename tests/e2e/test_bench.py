"""The benchmark runs, its page shows its figures, and the memory of commands does not grow with the checkpoint."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.bench import figures
from scripts.bench.page import page, rows
from tests.checkpoints import make_pair

ROOT = Path(__file__).parents[2]


def bench(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "scripts.bench", *args], cwd=ROOT, capture_output=True, text=True)


def test_everything_is_measured_on_tiny_data_and_shown_on_a_page(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, shards=1, fraction=0.2)
    done = bench("--quick", "--pair", *pair, "--dir", tmp_path / "work", "--page", tmp_path)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "work").iterdir()) == []
    run = figures.load(tmp_path / "benchmarks.json")
    assert [row for row in rows(run) if row[3] is None] == []
    assert {entry.name for entry in run.pairs} == {
        *(f"generated {name}" for name in ("sft", "opd", "rlvr", "sync")),
        f"given {pair[1].name}",
    }
    for entry in run.pairs:
        own, double = (entry.coding(run.default_codec, threads=threads) for threads in (1, 2))
        assert own
        assert double
        assert own.bytes == double.bytes
        assert 0 < entry.limits.mask < entry.limits.step < 16
    assert (tmp_path / "benchmarks.md").read_text() == page(run, "benchmarks.json")


@pytest.mark.usefixtures("compiled_kernels")  # the definitions in NumPy take new memory
def test_memory_does_not_grow_with_the_checkpoint(tmp_path: Path) -> None:
    options = (
        "--gigabytes",
        "0.4",
        "1.2",
        "--rounds",
        "1",
        "--dir",
        tmp_path / "work",
        "--json",
        tmp_path / "out.json",
    )
    done = bench("commands", *options)
    assert done.returncode == 0, done.stderr
    small, large = json.loads((tmp_path / "out.json").read_text())["sizes"]
    for less, more in zip(small["wholes"], large["wholes"], strict=True):
        # The smaller one already fills every buffer and cache; runs of one size differ by some 5 %.
        assert more["peak"] < 1.12 * less["peak"] < 1_200_000_000


def test_the_page_in_the_docs_shows_its_figures() -> None:
    path = ROOT / "docs" / "benchmarks.json"
    run = figures.load(path)
    assert path.with_suffix(".md").read_text() == page(run, path.name), f"scripts/bench/run page docs/{path.name}"
    assert not run.conditions.quick
