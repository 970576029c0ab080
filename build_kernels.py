"""How the kernels are compiled: the same C sources once for each set of instructions that a processor may have.

setup.py names the builders at the end. Each becomes an extension module in maskreg/native, in CPython's stable ABI:

    _baseline    what every processor of the architecture has
    _avx2        x86-64 with AVX2 and BMI2 (since about 2013)
    _avx512      x86-64 with the vectors of 512 bits that came with Ice Lake and Zen 4

Where there is no compiler, installing goes on without them; then NumPy does the work, slowly.
"""

from __future__ import annotations

from pathlib import Path

from cffi import FFI

_SOURCES = Path("maskreg", "native", "src")

# Results must not depend on the processor: no fused multiply-add, no reordered sums. Loops with square roots and
# comparisons of floats still become vectors, because nobody reads errno or the floating-point exceptions.
_FLAGS = ["-std=c11", "-O3", "-g0", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra"]
_AVX2 = ["-mavx2", "-mbmi", "-mbmi2", "-mlzcnt", "-mpopcnt"]
_AVX512 = [f"-mavx512{part}" for part in ("f", "bw", "cd", "dq", "vl", "vbmi", "vbmi2", "vpopcntdq")]
_OF_LEVEL = {"baseline": [], "avx2": _AVX2, "avx512": [*_AVX2, *_AVX512, "-mprefer-vector-width=512"]}


def declarations() -> str:
    """The part of kernels.h that cffi reads."""
    lines = (_SOURCES / "kernels.h").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


def _builder(level: str) -> FFI:
    ffi = FFI()
    ffi.cdef(declarations())
    ffi.set_source(
        f"maskreg.native._{level}",
        '#include "kernels.h"',
        sources=[str(path) for path in sorted(_SOURCES.glob("*.c"))],
        include_dirs=[str(_SOURCES)],
        depends=[str(path) for path in sorted(_SOURCES.glob("*.h"))],
        extra_compile_args=[*_FLAGS, *_OF_LEVEL[level]],
        optional=True,
    )
    return ffi


baseline, avx2, avx512 = (_builder(level) for level in _OF_LEVEL)
