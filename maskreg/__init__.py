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
    from maskreg.workspace.verbs import config, db, jobs, keys, plots, remotes
    from maskreg.workspace.verbs.analyze import analyze, moments, trajectory
    from maskreg.workspace.verbs.apply import apply, apply_, revert_, switch_
    from maskreg.workspace.verbs.baseline import baseline
    from maskreg.workspace.verbs.combine import combine
    from maskreg.workspace.verbs.compare import compare
    from maskreg.workspace.verbs.convert import convert_from, convert_to
    from maskreg.workspace.verbs.diff import diff
    from maskreg.workspace.verbs.doctor import doctor
    from maskreg.workspace.verbs.export import export, import_
    from maskreg.workspace.verbs.extract import extract
    from maskreg.workspace.verbs.follow import Followed, Follower, follow
    from maskreg.workspace.verbs.follow_folder import follow_folder
    from maskreg.workspace.verbs.gc import gc
    from maskreg.workspace.verbs.log import log
    from maskreg.workspace.verbs.merge import merge
    from maskreg.workspace.verbs.publish import Published, Publisher, publish
    from maskreg.workspace.verbs.pull import load, pull
    from maskreg.workspace.verbs.push import push
    from maskreg.workspace.verbs.report import report
    from maskreg.workspace.verbs.retrain import retrain
    from maskreg.workspace.verbs.search import search
    from maskreg.workspace.verbs.search import search as list
    from maskreg.workspace.verbs.show import show
    from maskreg.workspace.verbs.squash import squash
    from maskreg.workspace.verbs.survey import survey
    from maskreg.workspace.verbs.sweep import sweep
    from maskreg.workspace.verbs.tag import annotate, mv, remove, restore, tag
    from maskreg.workspace.verbs.verify import verify
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
    "Followed": "maskreg.workspace.verbs.follow",
    "Follower": "maskreg.workspace.verbs.follow",
    "Mask": "maskreg.mask",
    "MaskregError": "maskreg.errors",
    "NotAllowedError": "maskreg.errors",
    "NotFoundError": "maskreg.errors",
    "Published": "maskreg.workspace.verbs.publish",
    "Publisher": "maskreg.workspace.verbs.publish",
    "Ref": "maskreg.ref",
    "Registry": "maskreg.registry",
    "Settings": "maskreg.settings",
    "TensorMask": "maskreg.mask",
    "TryAgainError": "maskreg.errors",
    "UnavailableError": "maskreg.errors",
    "UsageError": "maskreg.errors",
    "Workspace": "maskreg.workspace.workspace",
    "analyze": "maskreg.workspace.verbs.analyze",
    "annotate": "maskreg.workspace.verbs.tag",
    "apply": "maskreg.workspace.verbs.apply",
    "apply_": "maskreg.workspace.verbs.apply",
    "baseline": "maskreg.workspace.verbs.baseline",
    "combine": "maskreg.workspace.verbs.combine",
    "compare": "maskreg.workspace.verbs.compare",
    "config": "maskreg.workspace.verbs",
    "convert_from": "maskreg.workspace.verbs.convert",
    "convert_to": "maskreg.workspace.verbs.convert",
    "db": "maskreg.workspace.verbs",
    "diff": "maskreg.workspace.verbs.diff",
    "doctor": "maskreg.workspace.verbs.doctor",
    "errors": "maskreg",
    "export": "maskreg.workspace.verbs.export",
    "extract": "maskreg.workspace.verbs.extract",
    "follow": "maskreg.workspace.verbs.follow",
    "follow_folder": "maskreg.workspace.verbs.follow_folder",
    "gc": "maskreg.workspace.verbs.gc",
    "import_": "maskreg.workspace.verbs.export",
    "jobs": "maskreg.workspace.verbs",
    "keys": "maskreg.workspace.verbs",
    "list": "maskreg.workspace.verbs.search:search",
    "load": "maskreg.workspace.verbs.pull",
    "log": "maskreg.workspace.verbs.log",
    "merge": "maskreg.workspace.verbs.merge",
    "moments": "maskreg.workspace.verbs.analyze",
    "mv": "maskreg.workspace.verbs.tag",
    "open_checkpoint": "maskreg.checkpoint",
    "plots": "maskreg.workspace.verbs",
    "publish": "maskreg.workspace.verbs.publish",
    "pull": "maskreg.workspace.verbs.pull",
    "push": "maskreg.workspace.verbs.push",
    "remotes": "maskreg.workspace.verbs",
    "remove": "maskreg.workspace.verbs.tag",
    "report": "maskreg.workspace.verbs.report",
    "restore": "maskreg.workspace.verbs.tag",
    "retrain": "maskreg.workspace.verbs.retrain",
    "revert_": "maskreg.workspace.verbs.apply",
    "search": "maskreg.workspace.verbs.search",
    "show": "maskreg.workspace.verbs.show",
    "squash": "maskreg.workspace.verbs.squash",
    "survey": "maskreg.workspace.verbs.survey",
    "sweep": "maskreg.workspace.verbs.sweep",
    "switch_": "maskreg.workspace.verbs.apply",
    "tag": "maskreg.workspace.verbs.tag",
    "trajectory": "maskreg.workspace.verbs.analyze",
    "verify": "maskreg.workspace.verbs.verify",
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
