"""The benchmark's page shows its figures, and commands hold no checkpoint in memory."""

from pathlib import Path

from scripts.bench import figures
from scripts.bench.commands import generate
from scripts.bench.page import page
from scripts.bench.timing import MASKREG, cores, environment, run, work_folder
from tests.repository import ROOT

GIGABYTES = 0.4
"""Of each checkpoint."""


def test_commands_hold_no_checkpoint_in_memory(tmp_path: Path) -> None:
    with work_folder(tmp_path, GIGABYTES) as folder, cores(1):
        generate(folder, GIGABYTES)
        for line in (
            ("extract", folder / "source", folder / "target", "--name", "bench"),
            ("apply", "bench", "--source", folder / "source", "-o", folder / "out"),
        ):
            # Of that, 60 MB are the interpreter's and the libraries'; buffers and caches are full at this size.
            assert run([MASKREG, *line], folder, environment(folder))[0].peak < 0.6 * GIGABYTES * 1e9


def test_the_page_in_the_docs_shows_its_figures() -> None:
    path = ROOT / "docs" / "benchmarks.json"
    shown = figures.load(path)
    assert path.with_suffix(".md").read_text() == page(shown, path.name), f"scripts/bench/run page docs/{path.name}"
    assert not shown.conditions.quick
