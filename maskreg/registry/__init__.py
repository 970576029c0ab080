"""Push, pull, tag, verify, collect garbage: a store and a catalog, on this machine or elsewhere."""

from maskreg.registry.identity import who
from maskreg.registry.registry import Registry, Resolved
from maskreg.registry.searching import Rebuilt

__all__ = ["Rebuilt", "Registry", "Resolved", "who"]
