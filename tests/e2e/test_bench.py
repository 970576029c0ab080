"""The benchmark runs, its page shows its figures, and the memory of commands does not grow with the checkpoint."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.bench import figures
from scripts.bench.commands import CORES, generate
from scripts.bench.page import page, rows
from scripts.bench.timing import MASKREG, cores, environment, run, work_folder
from tests.checkpoints import make_pair

ROOT = Path(__file__).parents[2]


def bench(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "scripts.bench", *args], cwd=ROOT, capture_output=True, text=True)


def test_everything_is_measured_on_tiny_data_and_shown_on_a_page(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, shards=1, fraction=0.2)
    done = bench("--quick", "--pair", *pair, "--dir", tmp_path / "work", "--page", tmp_path)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "work").iterdir()) == []
    measured = figures.load(tmp_path / "benchmarks.json")
    assert [row for row in rows(measured) if row[3] is None] == []
    assert {entry.name for entry in measured.pairs} == {
        *(f"generated {name}" for name in ("sft", "opd", "rlvr", "sync")),
        f"given {pair[1].name}",
    }
    for entry in measured.pairs:
        own, double = (entry.coding(measured.default_codec, threads=threads) for threads in (1, 2))
        assert own
        assert double
        assert own.bytes == double.bytes
        assert 0 < entry.limits.mask < entry.limits.step < 16
    assert (tmp_path / "benchmarks.md").read_text() == page(measured, "benchmarks.json")


@pytest.mark.usefixtures("compiled_kernels")  # the definitions in NumPy take new memory
def test_memory_does_not_grow_with_the_checkpoint(tmp_path: Path) -> None:
    peaks = []
    for gigabytes in (0.4, 0.8):
        with work_folder(tmp_path, gigabytes) as folder, cores(CORES):
            generate(folder, gigabytes)
            lines = (
                ("extract", folder / "source", folder / "target", "--name", "bench"),
                ("apply", "bench", "--source", folder / "source", "-o", folder / "out"),
            )
            peaks.append([run([MASKREG, *line], folder, environment(folder))[0].peak for line in lines])
    for less, more in zip(*peaks, strict=True):
        # The smaller one already fills every buffer and cache; runs of one size differ by some 5 %.
        assert more < 1.12 * less < 1_200_000_000


def test_the_page_in_the_docs_shows_its_figures() -> None:
    path = ROOT / "docs" / "benchmarks.json"
    shown = figures.load(path)
    assert path.with_suffix(".md").read_text() == page(shown, path.name), f"scripts/bench/run page docs/{path.name}"
    assert not shown.conditions.quick
