"""The benchmark's page shows its figures, and the memory of commands does not grow with the checkpoint."""

from pathlib import Path

import pytest

from scripts.bench import figures
from scripts.bench.commands import CORES, generate
from scripts.bench.page import page
from scripts.bench.timing import MASKREG, cores, environment, run, work_folder

ROOT = Path(__file__).parents[2]


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
