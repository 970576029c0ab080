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
    from maskreg.workspace.verbs import config, db, jobs, keys, remotes
    from maskreg.workspace.verbs.analyze import analyze, trajectory
    from maskreg.workspace.verbs.apply import apply, apply_, switch_
    from maskreg.workspace.verbs.baseline import baseline
    from maskreg.workspace.verbs.combine import combine
    from maskreg.workspace.verbs.compare import compare
    from maskreg.workspace.verbs.convert import convert_from, convert_to
    from maskreg.workspace.verbs.doctor import doctor
    from maskreg.workspace.verbs.extract import extract
    from maskreg.workspace.verbs.extract_result import extract_result
    from maskreg.workspace.verbs.follow import Followed, Follower, follow
    from maskreg.workspace.verbs.follow_folder import follow_folder
    from maskreg.workspace.verbs.gc import gc
    from maskreg.workspace.verbs.log import log
    from maskreg.workspace.verbs.merge import merge
    from maskreg.workspace.verbs.publish import Published, Publisher, publish
    from maskreg.workspace.verbs.pull import load, pull
    from maskreg.workspace.verbs.push import push
    from maskreg.workspace.verbs.replicas import replicas
    from maskreg.workspace.verbs.report import report
    from maskreg.workspace.verbs.retention import Retention
    from maskreg.workspace.verbs.retrain import retrain
    from maskreg.workspace.verbs.search import search
    from maskreg.workspace.verbs.search import search as list
    from maskreg.workspace.verbs.show import show
    from maskreg.workspace.verbs.squash import squash
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
    "Retention",
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
    "doctor",
    "errors",
    "extract",
    "extract_result",
    "follow",
    "follow_folder",
    "gc",
    "jobs",
    "keys",
    "list",
    "load",
    "log",
    "merge",
    "mv",
    "open_checkpoint",
    "publish",
    "pull",
    "push",
    "remotes",
    "remove",
    "replicas",
    "report",
    "restore",
    "retrain",
    "search",
    "show",
    "squash",
    "switch_",
    "tag",
    "trajectory",
    "verify",
]

# Looked up on first use: the command line must start without torch, numpy, zarr and the list of packages.
_VERBS = "maskreg.workspace.verbs"
_NAMES = {
    "artifact.reader": "Artifact",
    "checkpoint": "Checkpoint open_checkpoint",
    "digest": "Digest",
    "errors": "CannotCreateError ConfigError DataError MaskregError NotAllowedError NotFoundError TryAgainError "
    "UnavailableError UsageError",
    "mask": "Mask TensorMask",
    "mask.baseline": "BaselineSpec",
    "ref": "Card Ref",
    "registry": "Registry",
    "settings": "Settings",
    "workspace.verbs.analyze": "trajectory",
    "workspace.verbs.apply": "apply_ switch_",
    "workspace.verbs.convert": "convert_from convert_to",
    "workspace.verbs.follow": "Followed Follower",
    "workspace.verbs.publish": "Published Publisher",
    "workspace.verbs.pull": "load",
    "workspace.verbs.retention": "Retention",
    "workspace.verbs.tag": "annotate mv remove restore",
    "workspace.workspace": "Workspace",
}
"""Public names by module; any other is a use case, in the file of its own name."""

_HOMES = {name: f"maskreg.{module}" for module, names in _NAMES.items() for name in names.split()}

_MODULES = {"config", "db", "errors", "jobs", "keys", "remotes"}
"""Public names that are modules."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "list":
        value: Any = __getattr__("search")
    elif name in _MODULES:
        value = import_module("maskreg.errors" if name == "errors" else f"{_VERBS}.{name}")
    else:
        value = getattr(import_module(_HOMES.get(name, f"{_VERBS}.{name}")), name)
    globals()[name] = value
    return value


def __dir__() -> Iterable[str]:
    return sorted(__all__)
