"""What every use case works in: the settings, the local registry and the remotes that they name."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict

from maskreg.bucket import BucketPath, Location
from maskreg.closing import Closing
from maskreg.digest import Digest
from maskreg.errors import ConfigError, MaskregError, NotFoundError, UnavailableError, UsageError, prefixed, stating
from maskreg.ref import Card, Ref, ShortDigest, parse_artifact
from maskreg.registry import Registry
from maskreg.result import Brief, plain
from maskreg.settings import Settings

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest
    from maskreg.artifact.reader import Artifact
    from maskreg.checkpoint import Checkpoint


class Identified(Protocol):
    """A result of a use case, which is about an artifact."""

    @property
    def digest(self) -> Digest | None:
        """The artifact; None where there is none."""


ArtifactLike: TypeAlias = "str | Ref | Digest | ShortDigest | Artifact | Identified"
"""A reference, a digest or its first digits, an open artifact, or a result."""

CheckpointLike: TypeAlias = "str | Location | Checkpoint"
"""A path, a hub id, or an open checkpoint."""


class WorkOptions(TypedDict, total=False):
    """The device, and whether files with code are copied."""

    device: str
    with_code: bool


_log = logging.getLogger("maskreg")


@dataclass(frozen=True)
class Named(Brief):
    """An open artifact and its name.

    Attributes:
        ref: the reference that was given, or by which an open artifact was opened; None for a digest.
        artifact: the artifact.
    """

    ref: Ref | None
    artifact: Artifact
    card: Card

    def __post_init__(self) -> None:
        if self.ref is not None and not self.artifact.name:
            self.artifact.name = str(self.ref)

    @property
    def name(self) -> str:
        """The reference as text, or the short digest."""
        return str(self.ref) if self.ref else self.digest.short

    @property
    def digest(self) -> Digest:
        """The artifact's digest."""
        return self.artifact.digest

    @property
    def manifest(self) -> Manifest:
        """What was computed, and from what."""
        return self.artifact.manifest

    @property
    def size(self) -> int:
        """Size of all objects in bytes."""
        return self.manifest.size

    @property
    def density(self) -> float:
        """Share of the compared coordinates that moved."""
        return self.manifest.totals.density

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints: everything but the object table, then what a subclass has."""
        own = fields(self)[len(fields(Named)) :]
        return {
            "ref": str(self.ref) if self.ref else None,
            "digest": str(self.digest),
            "size": self.size,
            "density": self.density,
            "card": self.card.to_json(),
            "manifest": self.manifest.to_json(),
            **{field.name: plain(getattr(self, field.name)) for field in own},
        }


class Workspace(Closing):
    """The local registry and the remotes of one set of settings; each is opened on first use, and closed on leaving.

    Attributes:
        note: called with remarks for people: a sentence, or an error with facts that stops nothing; by default they go
            to the ``maskreg`` logger.
        confirm: asked before work whose result would move a name that others might use; None asks no one.
    """

    def __init__(
        self, settings: Settings | None = None, *, note: Callable[[str | MaskregError], None] = _log.info
    ) -> None:
        """Take these settings, by default the settings of the environment and the config file."""
        if settings is not None and not isinstance(settings, Settings):
            raise _unusable(settings, "settings: maskreg.Settings(...), or nothing")
        self._given = settings
        self._open = ExitStack()
        self._remotes: dict[str | None, Registry] = {}
        self.note = note
        self.confirm: Callable[[str], bool] | None = None

    @cached_property
    def settings(self) -> Settings:
        """The settings.

        Raises:
            ConfigError: the config file or the environment is wrong.
        """
        return self._given or Settings.load()

    def reload(self) -> None:
        """Read the settings again, after the configuration file was changed."""
        if self._given is not None:
            read = Settings.load({**os.environ, "MASKREG_CONFIG": str(self._given.config_path)})
            self._given = replace(self._given, remotes=read.remotes, default_remote=read.default_remote)
        self.__dict__.pop("settings", None)
        self._remotes.clear()

    @cached_property
    def local(self) -> Registry:
        """The local registry."""
        return self._open.enter_context(Registry.local(self.settings))

    @property
    def root(self) -> Path:
        """The folder of the local registry."""
        assert self.local.root is not None  # the local registry is a directory
        return self.local.root

    def remote(self, name: str | None = None) -> Registry:
        """The remote of that name, or the default one.

        Raises:
            UnavailableError: offline is set.
        """
        if name not in self._remotes:
            chosen = self.settings.remote(name)
            origin = self.settings.origins.get(f"remotes.{chosen.name}.url")
            with prefixed(f"{origin}: remotes.{chosen.name}: " if origin else "", ConfigError):
                try:
                    registry = self._open.enter_context(Registry.remote(chosen, self.settings))
                except ConfigError as error:
                    if "new_url" in error.facts:
                        error.facts["setting"] = f"remotes.{chosen.name}.url"
                    raise
            if registry.witness is not None:
                registry.witness.note = self.note
            self._remotes[name] = registry
        return self._remotes[name]

    def remote_to_ask(self, name: str | None = None) -> Registry | None:
        """The remote that a pull asks; None when the local registry has to do. Errors as for :meth:`remote`."""
        return self.remote(name) if self.settings.asks_remote(name) else None

    def registry(self, remote: str | None = None) -> Registry:
        """The remote of that name, or the local registry without a name."""
        # Not "if remote": an empty name, such as an unset variable gives, is no request for the local registry.
        return self.local if remote is None else self.remote(remote)

    def parse(self, artifact: ArtifactLike, registry: Registry | None = None) -> Ref | Digest | Artifact:
        """What a caller names, at the border: behind it there are only references, digests and open artifacts.

        Args:
            registry: where to look up the first digits of a digest; the local registry when left out.

        Raises:
            UsageError: several digests begin with the digits; or neither a reference, a digest, an artifact nor a
                result.
            NotFoundError: no digest begins with the digits.
        """
        if isinstance(artifact, str) and not isinstance(artifact, Digest):
            artifact = parse_artifact(artifact)
        if isinstance(artifact, ShortDigest):
            from maskreg.registry.tags import expand

            return expand(self.local if registry is None else registry, artifact)
        if isinstance(artifact, Ref | Digest):
            return artifact
        from maskreg.artifact.reader import Artifact

        if isinstance(artifact, Artifact):
            return artifact
        if not isinstance(digest := getattr(artifact, "digest", None), Digest):
            accepted = "an artifact: a reference, a digest, an open artifact or the result that made it"
            raise _unusable(artifact, accepted)
        ref = getattr(artifact, "ref", None)
        return replace(ref, digest=digest) if isinstance(ref, Ref) else digest

    def name_of(self, artifact: ArtifactLike, registry: Registry | None = None) -> Ref:
        """The reference of an artifact, for work that needs a name; of a digest the one tag that points to it.

        Args:
            registry: where it has the name; the local registry when left out.
        """
        parsed = self.parse(artifact, registry)
        if isinstance(parsed, Ref):
            return parsed
        from maskreg.registry.tags import only_name_of

        return only_name_of(registry or self.local, parsed if isinstance(parsed, Digest) else parsed.digest)

    def find(self, artifact: ArtifactLike, remote: str | None = None) -> Named:
        """Open an artifact of the local registry, or of a remote.

        Raises:
            UsageError: neither a reference, a digest, an artifact nor a result.
        """
        if remote is None and isinstance(artifact, Named):
            return artifact
        registry = self.registry(remote)
        parsed = self.parse(artifact, registry)
        if isinstance(parsed, Ref):
            resolved = registry.resolve(parsed)
            with stating(ref=parsed, remote=registry.remote_name):
                opened = registry.artifact(resolved.digest)
            # Pulling a pinned reference can move its tag, which a command that only reads must not do.
            if registry is self.local and parsed.digest is None:
                opened.bring = partial(self._bring, parsed.pinned(resolved.digest))
            return Named(parsed, opened, resolved.card)
        if remote is None and not isinstance(parsed, Digest):
            return Named(Ref.parse(parsed.name) if parsed.name else None, parsed, Card())
        return Named(None, registry.artifact(parsed if isinstance(parsed, Digest) else parsed.digest), Card())

    def _bring(self, ref: Ref, part: str) -> None:
        # A part that a pull into a pipe has left out; it stays absent where no remote can give it.
        from maskreg.registry.pull import pull

        with suppress(ConfigError, NotFoundError, UnavailableError):
            if (remote := self.remote_to_ask()) is not None:
                pull(self.local, remote, ref, parts=(part,), jobs=self.settings.jobs)
                self.note(f"fetched the {part} part of {replace(ref, digest=None)} from {remote.name}")

    @contextmanager
    def checkpoint(self, checkpoint: CheckpointLike, *, download: bool = False, side: str = "") -> Iterator[Checkpoint]:
        """Open a checkpoint for the time of a ``with``; one that is open already is left open.

        Args:
            checkpoint: a path, a hub id, or an open checkpoint.
            side: what it is, such as ``target``; begins the message when it cannot be opened.

        Raises:
            UsageError: neither a path, a hub id nor a checkpoint.
        """
        if not isinstance(checkpoint, str | Path | BucketPath):
            if not hasattr(checkpoint, "small_files"):
                raise _unusable(checkpoint, "a checkpoint: a path, a hub id, or an open checkpoint")
            yield checkpoint
            return
        with prefixed(f"{side}: " if side else ""):
            opened = self.opened_checkpoint(checkpoint, download=download)
        with closing(opened):
            yield opened

    def opened_checkpoint(self, checkpoint: str | Location, *, download: bool = False) -> Checkpoint:
        """Open a checkpoint with these settings, for a caller that closes it. See :meth:`checkpoint`."""
        from maskreg.checkpoint import open_checkpoint

        return open_checkpoint(checkpoint, download=download, options_of=self.settings.options_of)

    def accept(self, registry: Registry, ref: Ref, allow_rollback: bool) -> str:
        """Take the tag of a remote as it is now, though its log does not continue what this machine has seen of it.

        Args:
            registry: where the tag is.
            ref: the tag.

        Returns:
            What was refused until now; empty when nothing was.
        """
        if not allow_rollback:
            return ""
        from maskreg.registry.tags import accept_tag

        if refused := accept_tag(registry, ref):
            self.note(f"accepted: {refused}")
        return refused

    def close(self) -> None:
        """Close the registries that were opened."""
        self._open.close()


def opened(workspace: Workspace | None) -> AbstractContextManager[Workspace]:
    """The given workspace, left open; or a new one, closed at the end of the ``with``.

    Raises:
        UsageError: not a workspace.
    """
    if workspace is None:
        return Workspace()
    if not isinstance(workspace, Workspace):
        raise _unusable(workspace, "a Workspace")
    return nullcontext(workspace)


@contextmanager
def registry_of(remote: str | None, workspace: Workspace | None) -> Iterator[tuple[Workspace, Registry]]:
    """As :func:`opened`, and the registry that a call is about: a remote, or the local one."""
    with opened(workspace) as space:
        yield space, space.registry(remote)


def split_options(options: Mapping[str, Any], *kinds: type) -> list[dict[str, Any]]:
    """The options of each ``TypedDict``; one that several have goes to the first of them.

    Raises:
        TypeError: none has an option of this name.
    """
    parts: list[dict[str, Any]] = [{} for _ in kinds]
    for name, value in options.items():
        for part, kind in zip(parts, kinds, strict=True):
            if name in kind.__annotations__:
                part[name] = value
                break
        else:
            raise TypeError(f"there is no option {name!r}")
    return parts


def as_ref(ref: str | Ref) -> Ref:
    """A reference that can be given as text."""
    if isinstance(ref, Ref):
        return ref
    if not isinstance(ref, str):
        raise _unusable(ref, "a reference: text such as 'team/qwen3-8b-opd:v3', or a Ref")
    return Ref.parse(ref)


def as_name(name: str | Ref) -> Ref:
    """The name for something new: a reference without a digest."""
    ref = as_ref(name)
    if ref.digest is not None:
        raise UsageError("a new artifact has no digest yet", hint=f"call it {replace(ref, digest=None)}")
    return ref


def _unusable(value: object, accepted: str) -> UsageError:
    return UsageError(f"{type(value).__name__} was given; pass {accepted}")
