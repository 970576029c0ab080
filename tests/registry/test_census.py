"""What garbage collection does when names cannot be read, or the listing of names cannot be right."""

from __future__ import annotations

import subprocess
from datetime import timedelta

import pytest
from maskreg_cli.next_step import next_step

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.digest import Digest
from maskreg.errors import CorruptError, DataError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.collect import collect
from maskreg.registry.tags import remove, restore
from maskreg.store.entry import entry_key
from tests.artifact.making import pair, write
from tests.registry.conftest import CARD, REF, age

NOW = timedelta(0)


def damage(registry: Registry, ref: Ref) -> str:
    head = registry.head(ref)
    assert head is not None
    key = head.key
    registry.store.put(key, b"{}")
    return key


def test_a_damaged_name_spares_what_it_may_name_and_nothing_else(local: Registry, digest: Digest) -> None:
    assert local.root is not None
    given_up, lost = (write(local.root, pair(seed), parts=("mask", "delta")) for seed in (1, 2))
    other = Ref.parse("other")
    local.publish(other, given_up, card=CARD)
    remove(local, other)
    # Nothing but the entry that is damaged names ``lost``.
    local.publish(REF, lost, card=CARD)
    key = damage(local, REF)
    rehearsed = collect(local, NOW, dry_run=True)
    report = collect(local, NOW)
    assert [gone.digest for gone in report.collected] == [given_up]
    assert [error.key for error in report.damaged] == [error.key for error in rehearsed.damaged] == [key]
    for spared in (digest, lost):
        assert local.store.head(artifact_prefix(spared) + MANIFEST) is not None


def test_a_damaged_step_within_the_grace_period_spares_too(local: Registry, digest: Digest, other: Digest) -> None:
    local.publish(REF, other, card=CARD)
    remove(local, REF)
    local.store.put(entry_key(REF, 2), b"{}")
    for artifact in (digest, other):
        age(local, 30, artifact)
    report = collect(local)
    assert report.collected == ()
    assert [error.key for error in report.damaged] == [entry_key(REF, 2)]


def test_a_name_of_which_nothing_can_be_read_spares_what_it_named(local: Registry, digest: Digest) -> None:
    key = damage(local, REF)
    report = collect(local, NOW)
    assert (report.collected, [error.key for error in report.damaged]) == ((), [key])
    assert local.store.head(artifact_prefix(digest) + MANIFEST) is not None


def test_a_damaged_name_works_again_after_the_hints(local: Registry, digest: Digest, other: Digest) -> None:
    local.publish(REF, other, card=CARD)
    damage(local, REF)
    for fails in (
        lambda: local.resolve(REF),
        lambda: remove(local, REF),
        lambda: restore(local, REF),
        lambda: local.publish(REF, other, card=CARD),
    ):
        with pytest.raises(DataError) as caught:
            fails()
    subprocess.run(next_step(caught.value).partition(": ")[2], shell=True, check=True)
    with pytest.raises(CorruptError, match="is in the catalog, and is missing from the store") as caught:
        local.resolve(REF)
    assert next_step(caught.value).endswith(": maskreg db rebuild")
    local.index.rebuild()
    assert local.resolve(REF).digest == digest
    assert local.publish(REF, other, card=CARD).n == 2


def test_a_name_with_a_missing_entry_spares_what_it_may_name(local: Registry, digest: Digest, other: Digest) -> None:
    local.publish(REF, other, card=CARD)
    local.publish(REF, digest, card=CARD)
    local.store.delete([entry_key(REF, 2)])
    report = collect(local, NOW)
    assert report.collected == ()
    assert [error.key for error in report.damaged] == [entry_key(REF, 2)]
