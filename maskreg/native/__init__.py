"""The inner loops in C, compiled ahead of time for several sets of instructions, and how Python calls them."""

from maskreg.native.library import LEVELS, NUMPY, Library, available, library, switched_off, using

__all__ = ["LEVELS", "NUMPY", "Library", "available", "library", "switched_off", "using"]
