"""Merge methods: each function that a file of this folder decorates with ``Method(...)`` is one.

The table lists the folder, so that a method is added in one place: its file.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules

from maskreg.flow.merge.methods.base import Method


def discovered() -> dict[str, Method]:
    """The methods of every file of this folder, by name."""
    modules = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
    methods = [value for module in modules for value in vars(module).values() if isinstance(value, Method)]
    return {method.name: method for method in sorted(methods, key=lambda each: each.name)}


METHODS: Mapping[str, Method] = discovered()
"""Every method by name."""
