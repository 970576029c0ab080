"""Compiles the kernels; everything else about the package is in pyproject.toml.

The same C sources are compiled once for each set of instructions that a processor can have, and each becomes an
extension module in maskreg/native, in CPython's stable ABI:

    _baseline    what every processor of the architecture has
    _avx2        x86-64 with AVX2 and BMI2 (since about 2013)
    _avx512      x86-64 with the vectors of 512 bits that came with Ice Lake and Zen 4

A compiler that does not know the instructions of a level leaves it out; without a compiler, nothing is installed.
"""

from __future__ import annotations

import platform
from copy import copy
from pathlib import Path

from cffi import FFI
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

SOURCES = Path("maskreg", "native", "src")

# Results must not depend on the processor: no fused multiply-add, no reordered sums. Loops with square roots and
# comparisons of floats still become vectors, because nothing reads errno or the floating-point exceptions.
FLAGS = ["-std=c11", "-O3", "-g0", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra"]

AVX2 = ["-mavx2", "-mbmi", "-mbmi2", "-mlzcnt", "-mpopcnt"]
AVX512 = [f"-mavx512{part}" for part in ("f", "bw", "cd", "dq", "vl", "vbmi", "vbmi2", "vnni", "vpopcntdq")]
LEVELS = {"baseline": [], "avx2": AVX2, "avx512": [*AVX2, *AVX512, "-mprefer-vector-width=512"]}
"""Flags of each level; maskreg/native/src/level.c asks the processor for the same."""


def builder(level: str) -> FFI:
    """What compiles a level."""
    lines = (SOURCES / "kernels.h").read_text(encoding="utf-8").splitlines()
    ffi = FFI()
    ffi.cdef("\n".join(line for line in lines if not line.startswith("#")))
    ffi.set_source(
        f"maskreg.native._{level}",
        '#include "kernels.h"',
        sources=[str(path) for path in sorted(SOURCES.glob("*.c"))],
        include_dirs=[str(SOURCES)],
        depends=[str(path) for path in sorted(SOURCES.glob("*.h"))],
        extra_compile_args=[*FLAGS, *LEVELS[level]],
        optional=True,
    )
    return ffi


class SideBySide(build_ext):
    """Compiles levels at the same time, each with a folder of its own: their objects have the same names."""

    def run(self) -> None:
        """Compile all levels."""
        self.compiled: list[str] = []
        super().run()
        if not self.compiled:
            raise CompileError("maskreg was not built: its kernels need a C compiler and the headers of Python")

    def build_extension(self, ext: Extension) -> None:
        """Compile a level."""
        own = copy(self)
        own.build_temp = str(Path(self.build_temp, ext.name))
        build_ext.build_extension(own, ext)
        self.compiled.append(ext.name)


if __name__ == "__main__":
    here = ["baseline", "avx2", "avx512"] if platform.machine() in ("x86_64", "AMD64") else ["baseline"]
    setup(
        cmdclass={"build_ext": SideBySide},
        cffi_modules=[f"{__file__}:{level}" for level in here],
        options={
            # One wheel for all versions of CPython from this one on.
            "bdist_wheel": {"py_limited_api": "cp311"},
            "build_ext": {"parallel": True},
        },
    )
else:
    # cffi runs this file again, and takes the builders that are named above.
    baseline, avx2, avx512 = (builder(level) for level in LEVELS)
