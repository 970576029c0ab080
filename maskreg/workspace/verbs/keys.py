"""Keys that sign the tags of a project: made, listed, replaced, copied, trusted; and what they signed."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from maskreg.disk import creating
from maskreg.errors import MaskregError, NotAllowedError, NotFoundError, UsageError
from maskreg.ref import Ref
from maskreg.registry import Registry, signing
from maskreg.registry.keys import KeyDocument, PrivateKeys, read_private_key, write_private_key
from maskreg.registry.signing import Signatures
from maskreg.result import Result, plain
from maskreg.signature import PrivateKey, PublicKey
from maskreg.workspace.workspace import ArtifactLike, Workspace, opened, registry_of


@dataclass(frozen=True)
class ProjectKey(Result):
    """A key of a project, and when it signed.

    Attributes:
        project: whose tags it signs.
        registry: ``local``, or the remote's name.
        key: the public key.
        at: when it began, by the clock of its maker (aware, UTC).
        by: who made it.
        current: whether it signs now; a replaced key signs nothing any more.
        private: whether its private key is on this machine.
        fresh_s: how long a statement of freshness is good for, in seconds; 0 where readers want none.
        stated: when the key last said how the tags stand (aware, UTC); None for a replaced key.
    """

    project: str
    registry: str
    n: int
    key: PublicKey
    at: datetime
    by: str
    current: bool
    private: bool
    fresh_s: int
    stated: datetime | None

    @property
    def good_until(self) -> datetime | None:
        """When readers begin to refuse the project, unless it is refreshed (aware, UTC); None when they never do."""
        return self.stated + timedelta(seconds=self.fresh_s) if self.stated is not None and self.fresh_s else None

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        return {**super().to_json(), "good_until": plain(self.good_until)}


@dataclass(frozen=True)
class KeyFile(Result):
    """A private key in a file.

    Attributes:
        key: its public key.
    """

    key: PublicKey
    path: Path


def create(
    project: str,
    *,
    remote: str | None = None,
    fresh: timedelta | None = None,
    replace_lost: bool = False,
    workspace: Workspace | None = None,
) -> ProjectKey:
    """Make a key that signs the tags of a project from now on, and keep its private part on this machine.

    It vouches for all tags as they are. From then on a tag of the project that it does not vouch for is refused by
    every reader, and only the holder of the private key can set one.

    Args:
        fresh: readers refuse the project when the key has not said for longer than this how its tags stand
            (:func:`refresh`), so that an old state expires; left out, they do not ask.
        replace_lost: the key of the project is lost. Every reader has to be told to trust the new one.

    Raises:
        NotAllowedError: the project has a key already.
        UntrustedError: ``replace_lost``, and a tag is not as the lost key vouches for.
        NotFoundError: ``replace_lost``, and the project has no key.
    """
    with registry_of(remote, workspace) as (space, registry):
        private = PrivateKey.generate()
        with _kept(space, private):
            document = signing.create_key(registry, project, private, fresh_s=_seconds(fresh), lost=replace_lost)
        return _told(registry, document)


def rotate(
    project: str, *, remote: str | None = None, fresh: timedelta | None = None, workspace: Workspace | None = None
) -> ProjectKey:
    """Replace the key of a project with a new one. The old key signs the new one, and nothing after that.

    A reader who trusted the old key trusts the new one. This is also how a leaked key is revoked.

    Args:
        fresh: as for :func:`create`; as it was when left out, and zero for no such demand.

    Raises:
        NotAllowedError: the private part of the old key is not on this machine.
        UntrustedError: a tag is not as the old key vouches for.
    """
    with registry_of(remote, workspace) as (space, registry):
        private = PrivateKey.generate()
        with _kept(space, private):
            fresh_s = None if fresh is None else _seconds(fresh)
            document = signing.rotate_key(registry, project, private, fresh_s=fresh_s)
        return _told(registry, document)


def list(
    project: str | None = None, *, remote: str | None = None, workspace: Workspace | None = None
) -> tuple[ProjectKey, ...]:
    """List the keys of a project, or of all: the current one and those that it replaced.

    Raises:
        UntrustedError: the key that this machine trusts does not lead to the current one.
    """
    with registry_of(remote, workspace) as (_, registry):
        registry.check_format()
        if project is not None:
            signing.current_key(registry, project)
        projects = registry.trust.projects() if project is None else [project]
        return tuple(_told(registry, key) for name in projects for key in registry.trust.documents(name))


def export(
    project: str, out: str | Path, *, remote: str | None = None, force: bool = False, workspace: Workspace | None = None
) -> KeyFile:
    """Write the private key of a project to a file that only its owner can read, for a backup or another machine.

    Raises:
        CannotCreateError: the file cannot be written.
    """
    path = Path(out)
    with registry_of(remote, workspace) as (space, registry):
        key = signing.current_key(registry, project).key
        private = PrivateKeys(space.settings.home).find(key)
        if private is None:
            raise NotFoundError(
                f"the private key of {project}, {key}, is not on this machine",
                hint="the list of keys says where they are",
            )
        with creating(path):
            write_private_key(private, path, force=force)
    return KeyFile(key, path)


def import_(path: str | Path, *, workspace: Workspace | None = None) -> KeyFile:
    """Keep a private key on this machine, which then signs what it writes to the projects that have this key.

    Args:
        path: a file that :func:`export` wrote.

    Raises:
        NotAllowedError: it cannot be read.
        FormatError: it holds no private key.
    """
    with opened(workspace) as space:
        try:
            private = read_private_key(Path(path))
        except (FileNotFoundError, IsADirectoryError) as error:
            raise NotFoundError(f"there is no file {path}", key_file=path) from error
        except PermissionError as error:
            raise NotAllowedError(f"{path}: {error.strerror}", hint=f"ls -l {shlex.quote(str(path))}") from error
        return KeyFile(private.key, PrivateKeys(space.settings.home).add(private))


def trust(project: str, key: str, *, remote: str | None = None, workspace: Workspace | None = None) -> ProjectKey:
    """Trust a key as the one of a project from now on, in place of what this machine trusted until now.

    Without this, a machine trusts the key that it sees first, and those that the trusted one hands over to.

    Args:
        key: the public key, as its owner says it.

    Raises:
        UntrustedError: the project's current key is another one.
    """
    with registry_of(remote, workspace) as (_, registry):
        return _told(registry, signing.trust_key(registry, project, public_key(key)))


def sign(*artifacts: ArtifactLike, remote: str | None = None, workspace: Workspace | None = None) -> Signatures:
    """Sign what tags say now, for tags that were set without the key of their project.

    Args:
        artifacts: references, whose artifacts the caller has looked at.

    Raises:
        NotAllowedError: the private key is not on this machine.
        CorruptError: the log of a tag is damaged.
    """
    with registry_of(remote, workspace) as (space, registry):
        refs = [space.name_of(artifact, registry) for artifact in artifacts]
        for ref in refs:
            signing.vouch(registry, ref)
        return _signed(registry, refs)


def refresh(project: str, *, remote: str | None = None, workspace: Workspace | None = None) -> ProjectKey:
    """State, signed and dated, how the tags of a project stand now: readers of a project that asks for it need that.

    Raises:
        NotAllowedError: its private key is not on this machine.
        UntrustedError: a tag is not as the key vouches for, or behind the last statement.
        RolledBackError: a tag does not continue what this machine has seen of it.
    """
    with registry_of(remote, workspace) as (_, registry):
        signing.refresh(registry, project)
        return _told(registry, signing.current_key(registry, project))


def verify(*artifacts: ArtifactLike, remote: str | None = None, workspace: Workspace | None = None) -> Signatures:
    """Report which key vouches for tags, or for all of a registry, and since when.

    A wrong signature is not an error: it is in the result.

    Args:
        artifacts: references; every tag when left out.
    """
    with registry_of(remote, workspace) as (space, registry):
        if not artifacts:
            return Signatures(registry.name, tuple(signing.signed_tags(registry)))
        return _signed(registry, dict.fromkeys(space.name_of(artifact, registry) for artifact in artifacts))


def _signed(registry: Registry, refs: Iterable[Ref]) -> Signatures:
    return Signatures(registry.name, tuple(tag for ref in refs for tag in signing.signed_tags(registry, ref)))


def public_key(text: str) -> PublicKey:
    """A public key that is given as text."""
    try:
        return PublicKey(text)
    except ValueError as error:
        raise UsageError(str(error), hint="write ed25519: and 64 hex digits") from error


@contextmanager
def _kept(space: Workspace, private: PrivateKey) -> Iterator[None]:
    # Before the project names the key, or a crash in between would lose the key.
    path = PrivateKeys(space.settings.home).add(private)
    try:
        yield
    except MaskregError:
        path.unlink(missing_ok=True)
        raise


def _seconds(fresh: timedelta | None) -> int:
    seconds = int(fresh.total_seconds()) if fresh is not None else 0
    if seconds < 0:
        raise UsageError(f"{fresh} is no time to be good for; pass a timedelta of 0 or more")
    return seconds


def _told(registry: Registry, document: KeyDocument) -> ProjectKey:
    is_current = document == registry.trust.documents(document.project)[-1]
    trust = registry.trust
    stated = trust.renewed(document).at if is_current else None
    return ProjectKey(
        *(document.project, registry.name, document.n, document.key, document.at, document.by, is_current),
        private=registry.trust.find(document.key) is not None,
        fresh_s=document.fresh_s,
        stated=stated,
    )
