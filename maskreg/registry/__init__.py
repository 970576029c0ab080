"""Push, pull, tag, verify, collect garbage: a store and a catalog, here or elsewhere."""

from maskreg.registry.identity import who
from maskreg.registry.index import Rebuilt
from maskreg.registry.registry import GRACE, Registry
from maskreg.registry.resolved import Resolved

__all__ = ["GRACE", "Rebuilt", "Registry", "Resolved", "who"]
