"""The build of the kernels is chosen by the processor, or by name; watched kernels do end the process."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from maskreg.errors import ConfigError
from maskreg.native import LEVELS, available, library, using
from tests.native.sanitizing import ROOT

COUNTING = """
import numpy as np
from maskreg.analysis.grid import Grid, count_grid
from maskreg.mask import pack
from maskreg.native import available, using
from tests.analysis.test_grid import KINDS, SHAPES, cut, drawn

rng = np.random.default_rng(0)
for level in available():
    with using(level):
        for shape in SHAPES:
            for kind in KINDS:
                n = shape.height * shape.width
                codes, a, b = drawn(rng, n, kind), rng.random(n) < 0.4, rng.random(n) < 0.3
                grid = Grid(shape)
                for start, stop in cut(n, 4, rng):
                    # Copies end where their last element does, so that a read behind it is noticed.
                    bits = pack(a[start:stop]).copy(), pack(b[start:stop]).copy()
                    grid.add(count_grid(*bits, codes[start:stop].copy(), stop - start, start, shape))
                    count_grid(*bits, None, stop - start, start, shape)
print("watched")
"""
"""Counts of two masks by row and column, in spans of odd sizes."""

NAME = "from maskreg.native import library; print(library().level)"


def run(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "MASKREG_KERNELS"} | variables
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True)


def test_the_best_build_is_taken() -> None:
    assert available()[0] == LEVELS[0]
    assert run(NAME).stdout.strip() == available()[-1]


@pytest.mark.parametrize("name", available())
def test_another_build_can_be_named(name: str) -> None:
    assert run(NAME, MASKREG_KERNELS=name).stdout.strip() == name
    with using(name):
        assert library().level == name


def test_a_build_that_is_not_there_is_refused() -> None:
    done = run(NAME, MASKREG_KERNELS="avx1024")
    assert "'avx1024'" in done.stderr and ", ".join(available()) in done.stderr
    with pytest.raises(ConfigError), using("avx1024"):
        pass


def test_without_any_build_the_next_step_is_to_install_again_with_a_compiler() -> None:
    script = (
        "import sys; sys.modules['maskreg.native._baseline'] = None\n"
        "from maskreg.native import library\n"
        "try: library()\n"
        "except Exception as error: print(type(error).__name__, error.hint)"
    )
    done = run(script)
    assert done.stdout.startswith("ConfigError install a C compiler, then ")
    assert "--no-cache-dir" in done.stdout


def test_arrays_are_checked_before_a_kernel_sees_them() -> None:
    compiled = library()
    with pytest.raises(ValueError, match="contiguous"):
        compiled.read(np.zeros((4, 4), np.uint8)[:, 1])
    fixed = np.zeros(4, np.uint8)
    fixed.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        compiled.write(fixed)


def test_watched_kernels_end_the_process_that_reads_too_far(sanitized_kernels: dict[str, str]) -> None:
    script = (
        "import numpy as np; from maskreg.native import library; c = library(); "
        "c.lib.maskreg_fill_decoding(c.read(np.zeros((1, 64), np.uint16)), 2, c.write(np.zeros(8192, np.uint32)))"
    )
    done = run(script, **sanitized_kernels)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
    assert "in maskreg_fill_decoding" in done.stderr


def test_counting_reads_and_writes_within_its_arrays(sanitized_kernels: dict[str, str]) -> None:
    done = run(COUNTING, **sanitized_kernels)
    assert (done.returncode, done.stdout) == (0, "watched\n"), done.stderr
