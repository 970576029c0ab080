"""Recipes: what a step trains on, and the loss; one file each."""

from __future__ import annotations

from collections.abc import Mapping

from maskreg.errors import UsageError
from maskreg.train.recipes.base import Batch, Context, Recipe
from maskreg.train.recipes.custom import Custom
from maskreg.train.recipes.opd import Opd
from maskreg.train.recipes.sft import Sft

RECIPES: Mapping[str, Recipe] = {"opd": Opd(), "sft": Sft()}
"""The built-in recipes, by name."""


def get_recipe(name: str) -> Recipe:
    """A built-in recipe by name, or a user's own as ``module:function``."""
    if ":" in name:
        return Custom(name)
    if name not in RECIPES:
        known = ", ".join(RECIPES)
        raise UsageError(f"there is no recipe {name!r}", hint=f"one of: {known}; or your own: my.module:function")
    return RECIPES[name]


__all__ = ["RECIPES", "Batch", "Context", "Custom", "Recipe", "get_recipe"]
