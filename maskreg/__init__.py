"""maskreg: git and a registry for the weight updates that post-training makes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from maskreg.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from maskreg import errors
    from maskreg.artifact.reader import Artifact
    from maskreg.checkpoint import Checkpoint, open_checkpoint
    from maskreg.digest import Digest
    from maskreg.errors import (
        CannotCreateError,
        ConfigError,
        DataError,
        MaskregError,
        NotAllowedError,
        NotFoundError,
        TryAgainError,
        UnavailableError,
        UsageError,
    )
    from maskreg.mask import Mask, TensorMask
    from maskreg.mask.baseline import BaselineSpec
    from maskreg.ref import Card, Ref
    from maskreg.registry import Registry
    from maskreg.settings import Settings
    from maskreg.workspace import config, db, jobs, keys, plots, remotes
    from maskreg.workspace.analyze import analyze, moments, trajectory
    from maskreg.workspace.apply import apply, apply_, revert_, switch_
    from maskreg.workspace.baseline import baseline
    from maskreg.workspace.combine import combine
    from maskreg.workspace.compare import compare
    from maskreg.workspace.convert import convert_from, convert_to
    from maskreg.workspace.diff import diff
    from maskreg.workspace.doctor import doctor
    from maskreg.workspace.export import export, import_
    from maskreg.workspace.extract import extract
    from maskreg.workspace.follow import Followed, Follower, follow
    from maskreg.workspace.follow_folder import follow_folder
    from maskreg.workspace.gc import gc
    from maskreg.workspace.log import log
    from maskreg.workspace.merge import merge
    from maskreg.workspace.move import mv
    from maskreg.workspace.publish import Published, Publisher, publish
    from maskreg.workspace.pull import load, pull
    from maskreg.workspace.push import push
    from maskreg.workspace.report import report
    from maskreg.workspace.retrain import retrain
    from maskreg.workspace.search import search
    from maskreg.workspace.search import search as list
    from maskreg.workspace.show import show
    from maskreg.workspace.squash import squash
    from maskreg.workspace.survey import survey
    from maskreg.workspace.sweep import sweep
    from maskreg.workspace.tag import annotate, remove, restore, tag
    from maskreg.workspace.verify import verify
    from maskreg.workspace.workspace import Workspace

__all__ = [
    "Artifact",
    "BaselineSpec",
    "CannotCreateError",
    "Card",
    "Checkpoint",
    "ConfigError",
    "DataError",
    "Digest",
    "Followed",
    "Follower",
    "Mask",
    "MaskregError",
    "NotAllowedError",
    "NotFoundError",
    "Published",
    "Publisher",
    "Ref",
    "Registry",
    "Settings",
    "TensorMask",
    "TryAgainError",
    "UnavailableError",
    "UsageError",
    "Workspace",
    "__version__",
    "analyze",
    "annotate",
    "apply",
    "apply_",
    "baseline",
    "combine",
    "compare",
    "config",
    "convert_from",
    "convert_to",
    "db",
    "diff",
    "doctor",
    "errors",
    "export",
    "extract",
    "follow",
    "follow_folder",
    "gc",
    "import_",
    "jobs",
    "keys",
    "list",
    "load",
    "log",
    "merge",
    "moments",
    "mv",
    "open_checkpoint",
    "plots",
    "publish",
    "pull",
    "push",
    "remotes",
    "remove",
    "report",
    "restore",
    "retrain",
    "revert_",
    "search",
    "show",
    "squash",
    "survey",
    "sweep",
    "switch_",
    "tag",
    "trajectory",
    "verify",
]

# Looked up on first use: the command line must start without torch, numpy, zarr and the list of packages.
_HOMES = {
    "Artifact": "maskreg.artifact.reader",
    "BaselineSpec": "maskreg.mask.baseline",
    "CannotCreateError": "maskreg.errors",
    "Card": "maskreg.ref",
    "Checkpoint": "maskreg.checkpoint",
    "ConfigError": "maskreg.errors",
    "DataError": "maskreg.errors",
    "Digest": "maskreg.digest",
    "Followed": "maskreg.workspace.follow",
    "Follower": "maskreg.workspace.follow",
    "Mask": "maskreg.mask",
    "MaskregError": "maskreg.errors",
    "NotAllowedError": "maskreg.errors",
    "NotFoundError": "maskreg.errors",
    "Published": "maskreg.workspace.publish",
    "Publisher": "maskreg.workspace.publish",
    "Ref": "maskreg.ref",
    "Registry": "maskreg.registry",
    "Settings": "maskreg.settings",
    "TensorMask": "maskreg.mask",
    "TryAgainError": "maskreg.errors",
    "UnavailableError": "maskreg.errors",
    "UsageError": "maskreg.errors",
    "Workspace": "maskreg.workspace.workspace",
    "analyze": "maskreg.workspace.analyze",
    "annotate": "maskreg.workspace.tag",
    "apply": "maskreg.workspace.apply",
    "apply_": "maskreg.workspace.apply",
    "baseline": "maskreg.workspace.baseline",
    "combine": "maskreg.workspace.combine",
    "compare": "maskreg.workspace.compare",
    "config": "maskreg.workspace",
    "convert_from": "maskreg.workspace.convert",
    "convert_to": "maskreg.workspace.convert",
    "db": "maskreg.workspace",
    "diff": "maskreg.workspace.diff",
    "doctor": "maskreg.workspace.doctor",
    "errors": "maskreg",
    "export": "maskreg.workspace.export",
    "extract": "maskreg.workspace.extract",
    "follow": "maskreg.workspace.follow",
    "follow_folder": "maskreg.workspace.follow_folder",
    "gc": "maskreg.workspace.gc",
    "import_": "maskreg.workspace.export",
    "jobs": "maskreg.workspace",
    "keys": "maskreg.workspace",
    "list": "maskreg.workspace.search:search",
    "load": "maskreg.workspace.pull",
    "log": "maskreg.workspace.log",
    "merge": "maskreg.workspace.merge",
    "moments": "maskreg.workspace.analyze",
    "mv": "maskreg.workspace.move",
    "open_checkpoint": "maskreg.checkpoint",
    "plots": "maskreg.workspace",
    "publish": "maskreg.workspace.publish",
    "pull": "maskreg.workspace.pull",
    "push": "maskreg.workspace.push",
    "remotes": "maskreg.workspace",
    "remove": "maskreg.workspace.tag",
    "report": "maskreg.workspace.report",
    "restore": "maskreg.workspace.tag",
    "retrain": "maskreg.workspace.retrain",
    "revert_": "maskreg.workspace.apply",
    "search": "maskreg.workspace.search",
    "show": "maskreg.workspace.show",
    "squash": "maskreg.workspace.squash",
    "survey": "maskreg.workspace.survey",
    "sweep": "maskreg.workspace.sweep",
    "switch_": "maskreg.workspace.apply",
    "tag": "maskreg.workspace.tag",
    "trajectory": "maskreg.workspace.analyze",
    "verify": "maskreg.workspace.verify",
}
"""Where each public name is: a module, or ``module:name`` where it is called otherwise; modules by their parent."""

_MODULES = {"config", "db", "errors", "jobs", "keys", "plots", "remotes"}
"""Public names that are modules."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    if name in _MODULES:
        value: Any = import_module(f"{module}.{name}")
    else:
        value = getattr(import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> Iterable[str]:
    return sorted(__all__)
