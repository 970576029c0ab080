"""Pulling into a registry that may only be read: what is whole needs no write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from maskreg_cli.next_step import next_step

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.digest import Digest
from maskreg.errors import NotAllowedError
from maskreg.registry import Registry
from maskreg.registry.pull import pull
from maskreg.registry.push import push
from maskreg.registry.tags import annotate
from maskreg.store import FileStore
from tests.registry.conftest import CARD, REF


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes every folder refuse to be written to, as one of another user does."""

    def refuse(store: FileStore, *_: object) -> None:
        raise NotAllowedError(f"cannot write in {store.root}: Permission denied", hint=f"ls -ld {store.root}")

    def begin() -> None:
        for method in ("put", "create", "delete"):
            monkeypatch.setattr(FileStore, method, refuse)

    return begin


def test_what_is_whole_needs_no_write(
    empty: Registry, remote: Registry, pushed: Digest, read_only: Callable[[], None]
) -> None:
    pull(empty, remote, REF)
    read_only()
    again = pull(empty, remote, REF)
    assert (again.resolved.digest, again.fetched_objects, again.note) == (pushed, 0, "")
    assert pull(empty, remote, replace(REF, digest=pushed)).artifact.present() == {"mask", "delta"}


def test_what_has_to_be_written_is_said(
    empty: Registry, local: Registry, remote: Registry, pushed: Digest, other: Digest, read_only: Callable[[], None]
) -> None:
    for tag, digest in (("v1", pushed), ("v2", other)):
        local.publish(REF.with_tag(tag), digest, card=CARD)
        push(local, remote, REF.with_tag(tag))
        pull(empty, remote, REF.with_tag(tag))
    annotate(remote, REF.with_tag("v1"), description="better")
    remote.publish(REF.with_tag("v2"), pushed, card=CARD)
    read_only()
    for tag, why in (("v1", "has another card on the remote than locally"), ("v2", f"has to move to {pushed.short}")):
        with pytest.raises(NotAllowedError, match=f"{REF.with_tag(tag)} {why}.*: cannot write in") as caught:
            pull(empty, remote, REF.with_tag(tag))
        assert next_step(caught.value).startswith("ls -ld ")


def test_a_manifest_that_differs_is_not_left_as_it_is(
    empty: Registry, remote: Registry, pushed: Digest, read_only: Callable[[], None]
) -> None:
    pull(empty, remote, REF)
    assert empty.root is not None
    path = empty.root / artifact_prefix(pushed) / MANIFEST
    whole = path.read_bytes()
    read_only()
    for damaged in (whole[:-1] + b" ", whole[:-1]):
        path.write_bytes(damaged)
        with pytest.raises(NotAllowedError, match="Permission denied"):
            pull(empty, remote, REF)
    path.unlink()
    with pytest.raises(NotAllowedError, match="Permission denied"):
        pull(empty, remote, REF)
