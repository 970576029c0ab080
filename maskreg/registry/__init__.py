"""Push, pull, tag, verify, collect garbage: a store and a catalog, on this machine or elsewhere."""

from maskreg.registry.identity import who
from maskreg.registry.index.searching import Rebuilt
from maskreg.registry.naming import Resolved
from maskreg.registry.registry import Registry

__all__ = ["Rebuilt", "Registry", "Resolved", "who"]
