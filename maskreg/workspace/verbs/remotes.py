"""Remotes: registries elsewhere, which the configuration file names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from maskreg.catalog import Query, open_catalog
from maskreg.errors import ConfigError, MaskregError, NotAllowedError, UnauthenticatedError
from maskreg.registry import Registry
from maskreg.registry.tags import accept_all
from maskreg.result import Result
from maskreg.settings import Remote, StoreOptions, add_remote, checked, remove_remote, set_value
from maskreg.store import open_store
from maskreg.store.probe import Probe, probe
from maskreg.workspace.workspace import Workspace, opened


@dataclass(frozen=True)
class NamedRemote(Result, Remote):
    """A remote, with what :class:`maskreg.settings.Remote` has.

    Attributes:
        default: it is the default remote.
    """

    default: bool = False


@dataclass(frozen=True)
class AddedRemote(NamedRemote):
    """A remote that was added.

    Attributes:
        create_only: whether its store refuses the second of two create-only writes, as tags need: ``safe``,
            ``unsafe``, ``unsupported``, or ``untried`` where nothing can be written.
        writable: False when its store can be listed and read, and not written to: pull works, push does not.
    """

    create_only: str = "untried"
    writable: bool = False


@dataclass(frozen=True)
class CheckedRemote(AddedRemote):
    """A remote whose store was tried.

    Attributes:
        reason: why create-only writes are not safe, or why nothing can be written; empty when they are.
        accepted: what was refused until now and is taken as it is: the registry, and each tag that went back.
    """

    reason: str = ""
    accepted: tuple[str, ...] = ()

    @property
    def keeps_tags(self) -> bool:
        """No two writers can lose a tag: the store refuses one, or it is read-only."""
        return not self.writable or self.create_only == "safe"


def add(
    name: str,
    url: str | Path,
    *,
    catalog: str = "",
    endpoint: str = "",
    region: str = "",
    profile: str = "",
    addressing: Literal["auto", "path", "virtual"] = "auto",
    checksums: Literal["when_required", "when_supported"] = "when_required",
    ca_bundle: str | Path = "",
    project_keys: Sequence[str] = (),
    default: bool = False,
    workspace: Workspace | None = None,
) -> AddedRemote:
    """Add a remote to the configuration file.

    First a small object is put, read, listed and deleted, and create-only writes are tried. A store without them
    could lose tags and is refused. One that can only be read is accepted when there
    is a registry in it, and a service that wants a token before anything is tried, with a note. A folder that does not
    exist is made. The catalog is opened too; one without a schema is accepted, with a note.

    Args:
        url: ``s3://bucket/prefix``, ``file:///path``, a path, or ``https://host`` of a service.
        catalog: catalog in PostgreSQL, ``postgresql+psycopg://host/database``.
        endpoint: base URL of an S3-compatible service.
        profile: profile of the shared AWS configuration.
        addressing: bucket in the path or in the host name.
        checksums: when to use request and response checksums.
        ca_bundle: file of CA certificates for TLS.
        project_keys: public keys to trust from the beginning, as ``team=ed25519:<64 hex digits>``.
        default: make it the default remote; the first remote is, until another is chosen.

    Raises:
        ConfigError: the name is taken or malformed, a value is malformed, a URL holds a password, the store cannot keep
            tags, or there is no such database.
        UnavailableError: the store or the catalog's server does not answer.
    """
    options = StoreOptions(endpoint, region, profile, addressing, checksums, str(ca_bundle))
    with opened(workspace) as space:
        if name in space.settings.remotes:
            raise ConfigError(f"there is already a remote called {name!r}", taken_remote=name)
        remote = checked(Remote(name, str(url), catalog, options, tuple(project_keys)))
        check_store(remote.url, new_remote=remote.name)
        try:
            result = _first_probe(remote)
        except UnauthenticatedError as error:
            # The next step is to log in, which needs the remote.
            space.note(error)
            result = Probe("untried", error.message, writable=False)
        if result.writable and not result.safe:
            raise ConfigError(f"{remote.url} cannot keep tags: {result.reason}", hint="use a service that can")
        schema = _catalog_to_upgrade(remote)
        path = space.settings.config_path
        add_remote(path, remote)
        if schema is not None:
            space.note(schema)
        # The first remote stays the default one until another is chosen.
        first = space.settings.meant_remote or (name if not space.settings.remotes else "")
        if default or (first and not space.settings.default_remote):
            set_value(path, "default_remote", name if default else first)
        space.reload()
        is_default = space.settings.meant_remote == name
        tried: Any = {"create_only": result.create_only, "writable": result.writable}
        return AddedRemote(**vars(remote), default=is_default, **tried)


def list(*, workspace: Workspace | None = None) -> tuple[NamedRemote, ...]:
    """List the remotes of the configuration file."""
    with opened(workspace) as space:
        default = space.settings.meant_remote
        remotes = space.settings.remotes.values()
        return tuple(NamedRemote(**vars(r), default=r.name == default) for r in remotes)


def remove(name: str, *, workspace: Workspace | None = None) -> None:
    """Remove a remote from the configuration file. Its data stays where it is."""
    with opened(workspace) as space:
        was_default = space.settings.meant_remote == name
        remove_remote(space.settings.config_path, name)
        space.reload()
        if was_default and space.settings.remotes:
            left = space.settings.meant_remote
            first = next(iter(space.settings.remotes))
            if left:
                space.note(f"{left} is the default remote now")
            else:
                space.note(ConfigError("no remote is the default one now", no_default=first))


def check(
    name: str | None = None, *, allow_rollback: bool = False, workspace: Workspace | None = None
) -> CheckedRemote:
    """Try what a registry needs of a remote: put, get, list, delete, create-only writes, and its catalog.

    A store that can only be read is not an error: pull works then, and push does not.

    Args:
        allow_rollback: take the registry that is there now, though it is not the one that this machine has seen
            there, and all its tags as they are, though their logs went back; and remember that.

    Raises:
        UnavailableError: the store or the catalog's server does not answer.
        CorruptError: the store does not return what was written.
        RolledBackError: another registry is there than the one that this machine has seen.
    """
    with opened(workspace) as space:
        remote = space.settings.remote(name)
        result = probed(remote)
        registry = space.remote(remote.name)
        accepted = []
        for refused in accept_all(registry) if allow_rollback else ():
            space.note(f"accepted: {refused}")
            accepted.append(refused)
        if registry.witness is not None:
            registry.witness.check_registry(registry.uuid)
        try_catalog(remote)
        is_default = space.settings.meant_remote == remote.name
        return CheckedRemote(**vars(remote), **vars(result), default=is_default, accepted=tuple(accepted))


def check_store(url: str, **place: str) -> None:
    """Refuse a URL that is not one of a store; nothing is read or written."""
    try:
        open_store(url).close()
    except ConfigError as error:
        if url.startswith("http://"):
            # The address of a web service can be the endpoint of a store.
            error.hint = "name a bucket, s3://BUCKET/PREFIX, with this as its endpoint"
            error.facts |= {"new_url": "s3://BUCKET/PREFIX", "endpoint": url}
        if "new_url" in error.facts:
            error.facts |= place
        raise


def try_catalog(remote: Remote) -> None:
    """Open the catalog of a remote as every use case does; do nothing for a remote that has none."""
    if not remote.catalog:
        return
    try:
        with open_catalog(remote.catalog) as catalog:
            catalog.answer(Query(limit=1))
    except MaskregError as error:
        error.facts["remote"] = remote.name
        error.message = f"the catalog of {remote.name}: {error.message}"
        error.args = (error.message,)
        raise


def probed(remote: Remote) -> Probe:
    """Try the store of a remote."""
    with Registry.remote(remote) as registry:
        return probe(registry.store)


def _catalog_to_upgrade(remote: Remote) -> ConfigError | None:
    # A new database gets its schema by a command that names the remote, so the remote is added first.
    try:
        try_catalog(remote)
    except ConfigError as error:
        if "catalog_behind" not in error.facts:
            raise
        return error
    return None


def _first_probe(remote: Remote) -> Probe:
    with Registry.remote(remote) as registry:
        if (files := registry.store.files) is not None:
            files.make()
        result = probe(registry.store)
        if not result.writable and not registry.uuid:
            raise NotAllowedError(
                f"{remote.url}: there is no registry yet, and none can begin: {result.reason}",
                hint="add it with credentials that can write, and push something to it",
            )
        return result
