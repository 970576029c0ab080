"""Compiling inner loops: on first use, kept on disk, with vector instructions where the processor has them."""

from maskreg.jit.compiled import is_compiled, kernel

__all__ = ["is_compiled", "kernel"]
