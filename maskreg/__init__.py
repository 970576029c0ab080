"""maskreg: git and a registry for the weight updates that post-training makes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from maskreg.version import __version__

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact
    from maskreg.checkpoint import open_checkpoint
    from maskreg.flow.apply.in_memory import apply_
    from maskreg.mask.baseline import BaselineSpec
    from maskreg.workspace.analyze import analyze, trajectory
    from maskreg.workspace.apply import apply
    from maskreg.workspace.baseline import baseline
    from maskreg.workspace.combine import combine
    from maskreg.workspace.compare import compare
    from maskreg.workspace.extract import extract
    from maskreg.workspace.pull import load, pull

__all__ = [
    "Artifact",
    "BaselineSpec",
    "__version__",
    "analyze",
    "apply",
    "apply_",
    "baseline",
    "combine",
    "compare",
    "extract",
    "load",
    "open_checkpoint",
    "pull",
    "trajectory",
]

# Looked up when first asked for: the command line must start without torch, numpy, zarr and the list of packages.
_HOMES = {
    "Artifact": "maskreg.artifact.reader",
    "BaselineSpec": "maskreg.mask.baseline",
    "analyze": "maskreg.workspace.analyze",
    "apply": "maskreg.workspace.apply",
    "apply_": "maskreg.flow.apply.in_memory",
    "baseline": "maskreg.workspace.baseline",
    "combine": "maskreg.workspace.combine",
    "compare": "maskreg.workspace.compare",
    "extract": "maskreg.workspace.extract",
    "load": "maskreg.workspace.pull",
    "open_checkpoint": "maskreg.checkpoint",
    "pull": "maskreg.workspace.pull",
    "trajectory": "maskreg.workspace.analyze",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
