"""How inner loops are compiled: once a machine, kept on disk, in vectors where the processor has them."""

from maskreg.jit.compiled import is_compiled, kernel

__all__ = ["is_compiled", "kernel"]
