"""The inner loops in C, compiled ahead of time for several sets of instructions, and how Python calls them."""

from maskreg.native.library import LEVELS, Library, available, library, using

__all__ = ["LEVELS", "Library", "available", "library", "using"]
