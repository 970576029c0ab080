"""The index beside the store: lost or never filled it comes back, and what cannot be read is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from maskreg_cli.next_step import next_step

from maskreg.catalog import Query, open_catalog
from maskreg.digest import Digest
from maskreg.errors import CorruptError, UnavailableError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.collect import collect
from maskreg.registry.push import push
from maskreg.registry.tags import annotate, remove, restore, tag
from maskreg.registry.verify import verify
from maskreg.settings import Remote, Settings
from tests.registry.conftest import REF, new_local
from tests.store.wrapped import Censored

NAMES = {"qwen3-8b-opd", "second", "third"}


@pytest.fixture
def home(local: Registry, digest: Digest) -> Path:
    """The home of a registry with two names, without its catalog."""
    assert local.root is not None
    tag(local, REF, Ref.parse("second"))
    local.close()
    for path in local.root.glob("catalog.db*"):
        path.unlink()
    return local.root


def found(registry: Registry) -> set[str]:
    return {row.name for row in registry.search(Query()).results}


def test_a_tag_as_the_first_act_after_the_loss(home: Path) -> None:
    with new_local(home) as again:
        tag(again, REF, Ref.parse("third"))
    with new_local(home) as later:
        assert later.catalog is not None
        assert found(later) == NAMES


def test_a_catalog_that_was_made_and_not_filled(home: Path) -> None:
    open_catalog(f"sqlite:///{home / 'catalog.db'}").close()
    with new_local(home) as again:
        tag(again, REF, Ref.parse("third"))
        assert found(again) == NAMES


def test_filling_that_breaks_off_is_done_by_the_next(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: object) -> None:
        raise UnavailableError("the disk is away")

    with monkeypatch.context() as patched, new_local(home) as first:
        patched.setattr("maskreg.registry.index.digests_in", down)
        assert first.catalog is None
        assert isinstance(first.catalog_problem, UnavailableError)
    with new_local(home) as second:
        assert second.catalog is not None
        assert found(second) == NAMES - {"third"}


def test_a_full_catalog_is_not_filled_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with new_local(home) as first:
        tag(first, REF, Ref.parse("third"))
        assert first.catalog_url == f"sqlite:///{home / 'catalog.db'}"
    monkeypatch.delattr("maskreg.registry.index.digests_in")
    with new_local(home) as again:
        assert found(again) == NAMES


def damage_entry(registry: Registry) -> str:
    key = f"refs/{Ref.parse('second').path}/{1:020d}.json"
    data = registry.store.get(key, max_bytes=1 << 20)
    registry.store.put(key, data.replace(b"ada@here", b"eve@here"))
    return key


def test_one_damaged_entry_is_reported_and_the_rest_looked_at(home: Path, digest: Digest) -> None:
    with new_local(home) as registry:
        key = damage_entry(registry)
        report = verify(registry)
        assert [(d.digest, d.names, d.key) for d in report.damaged] == [(None, ("second",), key)]
        assert report.artifacts == 1
        assert report.objects > 0
        rebuilt = registry.index.rebuild()
        assert (rebuilt.refs, rebuilt.artifacts, len(rebuilt.damaged)) == (1, 1, 1)
        assert isinstance(rebuilt.damaged[0], CorruptError)
        assert found(registry) == {REF.name}
        assert [error.key for error in collect(registry).damaged] == [key]


def test_search_without_a_catalog_names_the_damaged_entry(local: Registry, home: Path, remote: Registry) -> None:
    push(local, remote, REF)
    push(local, remote, Ref.parse("second"))
    damage_entry(remote)
    assert found(remote) == {REF.name}
    assert [name.ref for name in remote.search(Query()).left_out] == ["second"]


def test_a_name_whose_writer_died_before_it_indexed_it_is_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with new_local(home) as first:
        assert found(first) == NAMES - {"third"}
        with monkeypatch.context() as patched:
            patched.setattr("maskreg.registry.index.Index.note", lambda *_: None)
            tag(first, REF, Ref.parse("third"))
            remove(first, Ref.parse("second"))
    with new_local(home) as later:
        assert found(later) == {"qwen3-8b-opd", "third"}
        assert later.search(Query()).left_out == ()


def test_an_older_copy_of_the_catalog_catches_up(home: Path) -> None:
    with new_local(home) as first:
        assert found(first) == NAMES - {"third"}
    copy = (home / "catalog.db").read_bytes()
    with new_local(home) as first:
        tag(first, REF, Ref.parse("third"))
    (home / "catalog.db").write_bytes(copy)
    with new_local(home) as later:
        assert found(later) == NAMES


def test_what_the_store_has_lost_is_said(home: Path) -> None:
    with new_local(home) as first:
        assert found(first) == NAMES - {"third"}
        remove(first, Ref.parse("second"))
        restore(first, Ref.parse("second"))
        first.store.delete([f"refs/{Ref.parse('second').path}/{3:020d}.json"])
    with new_local(home) as later:
        search = later.search(Query())
        assert {row.name for row in search.results} == {"qwen3-8b-opd"}
        (name,) = search.left_out
        assert name.ref == "second"
        said = "entry 3 of second is in the catalog, and is missing from the store, whose latest is entry 2"
        assert said in name.reason
        later.index.rebuild()
        assert later.search(Query()).left_out == ()


def test_a_local_name_that_went_back_is_refused_where_it_is_used(home: Path) -> None:
    second = Ref.parse("second")
    with new_local(home) as first:
        assert found(first) == NAMES - {"third"}
        annotate(first, second, license="mit")
        first.store.delete([f"refs/{second.path}/{2:020d}.json"])
    with new_local(home) as later:
        with pytest.raises(CorruptError, match=r"entry 2 of second is in the catalog, .*whose latest is entry 1"):
            later.resolve(second)
        later.index.rebuild()
        assert later.resolve(second).card.license == "apache-2.0"


def test_a_list_of_a_remote_leaves_out_what_went_back(home: Path, tmp_path: Path) -> None:
    second = Ref.parse("second")
    settings = Settings(home=home, config_path=tmp_path / "config.toml")
    (tmp_path / "lab").mkdir()
    with new_local(home) as ada, Registry.remote(Remote("lab", f"file://{tmp_path}/lab"), settings) as lab:
        push(ada, lab, REF)
        push(ada, lab, second)
        lab.store.delete([f"refs/{second.path}/{1:020d}.json"])
        search = lab.search(Query())
        assert {row.name for row in search.results} == {REF.name}
        (name,) = search.left_out
        assert "entry 1 of second was seen by this machine, and is missing from the store" in name.reason
        assert next_step(name.error).startswith("maskreg show second --remote lab --allow-rollback")


def test_an_empty_listing_of_a_remote_is_not_taken_for_an_empty_remote(home: Path, tmp_path: Path) -> None:
    settings = Settings(home=home, config_path=tmp_path / "config.toml")
    (tmp_path / "lab").mkdir()
    with new_local(home) as ada, Registry.remote(Remote("lab", f"file://{tmp_path}/lab"), settings) as lab:
        push(ada, lab, REF)
        # The first listing of names shows nothing, the next one everything.
        hidden = Censored(lab.store, "refs/", lambda key: True, last=1)
        with Registry(hidden, name="lab", witness=lab.witness) as behind:
            search = behind.search(Query())
            assert search.results == ()
            assert [name.ref for name in search.left_out] == [str(REF)]
