"""maskreg: git and a registry for the weight updates that post-training makes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact
    from maskreg.checkpoint import open_checkpoint
    from maskreg.flow.apply.in_memory import apply_
    from maskreg.flow.baseline.build import make_baseline
    from maskreg.flow.combine.combination import combine
    from maskreg.flow.geometry.analysis import analyze
    from maskreg.flow.overlap.measure import measure_overlap as contrast
    from maskreg.mask.baseline import BaselineSpec
    from maskreg.workspace.apply import apply
    from maskreg.workspace.extract import extract
    from maskreg.workspace.pull import load, pull

__version__ = "0.1.0"
"""The one place that holds it; pyproject.toml reads it here."""

__all__ = [
    "Artifact",
    "BaselineSpec",
    "__version__",
    "analyze",
    "apply",
    "apply_",
    "combine",
    "contrast",
    "extract",
    "load",
    "make_baseline",
    "open_checkpoint",
    "pull",
]

# Looked up when first asked for: the command line must start without torch, numpy, zarr and the list of packages.
_HOMES = {
    "Artifact": "maskreg.artifact.reader",
    "BaselineSpec": "maskreg.mask.baseline",
    "analyze": "maskreg.flow.geometry.analysis",
    "apply": "maskreg.workspace.apply",
    "apply_": "maskreg.flow.apply.in_memory",
    "combine": "maskreg.flow.combine.combination",
    "contrast": "maskreg.flow.overlap.measure:measure_overlap",
    "extract": "maskreg.workspace.extract",
    "load": "maskreg.workspace.pull",
    "make_baseline": "maskreg.flow.baseline.build",
    "open_checkpoint": "maskreg.checkpoint",
    "pull": "maskreg.workspace.pull",
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
