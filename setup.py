"""Builds the compiled kernels; everything else about the package is in pyproject.toml."""

import platform

from setuptools import setup

LEVELS = ["baseline"] + ["avx2", "avx512"] * (platform.machine() in ("x86_64", "AMD64"))

setup(
    cffi_modules=[f"build_kernels.py:{level}" for level in LEVELS],
    # One wheel for all versions of CPython from this one on.
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
