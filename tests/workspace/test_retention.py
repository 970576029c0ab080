"""Retention of a run: anchors, kept versions, links that expire, and their readers; on all remotes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import maskreg
from maskreg.digest import Digest
from maskreg.errors import ConflictError, MissingLinkError, NotFoundError, UsageError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.collect import collect
from maskreg.registry.expiry import expire, version_of
from maskreg.registry.pull import bring
from maskreg.service.app import create_app
from maskreg.settings import Remote, Settings, StoreOptions
from maskreg.settings.credentials import VARIABLE
from tests.servers import S3Server
from tests.service.serving import listening, service_in
from tests.workspace.conftest import Lab, contents
from tests.workspace.conftest import step as step_of

RUN = Ref("team", "run")


@dataclass(frozen=True)
class Kept:
    """A run of many steps and its remote, which each person reaches from a workspace of their own."""

    lab: Lab
    remote: Remote
    steps: list[Path]
    stack: ExitStack

    def space(self, name: str) -> maskreg.Workspace:
        home = self.lab.folder / name
        settings = replace(Settings(home=home / "home", config_path=home / "config.toml"), default_remote="team")
        return self.stack.enter_context(maskreg.Workspace(replace(settings, remotes={"team": self.remote})))

    def publisher(self, space: maskreg.Workspace, **how: Any) -> maskreg.Publisher:
        retention = maskreg.Retention(**{"anchor_every": 4, "lease_s": 0, **how})
        return self.stack.enter_context(
            maskreg.Publisher(RUN, source=self.steps[0], remote="team", workspace=space, retention=retention)
        )

    def publish(self, publisher: maskreg.Publisher, *steps: int) -> None:
        for step in steps:
            publisher.publish(self.steps[step])

    def follower(self, space: maskreg.Workspace, out: str, source: int = 0) -> maskreg.Follower:
        path = self.lab.folder / out
        return self.stack.enter_context(
            maskreg.follow_folder(RUN, path, self.steps[source], every_s=0, workspace=space)
        )

    def is_at(self, step: int, out: str) -> bool:
        return contents((self.lab.folder / out / "current").resolve()) == contents(self.steps[step])


@pytest.fixture(params=["folder", "bucket", "service"])
def kept(request: pytest.FixtureRequest, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    with ExitStack() as stack:
        options = StoreOptions()
        if request.param == "bucket":
            server: S3Server = request.getfixturevalue("s3_server")
            for name, value in server.env().items():
                monkeypatch.setenv(name, value)
            url, options = f"s3://{server.new_bucket()}/team", StoreOptions(endpoint=server.endpoint)
        elif request.param == "service":
            monkeypatch.setenv(VARIABLE, "writer-token")
            service = stack.enter_context(service_in(tmp_path / "registry"))
            url = stack.enter_context(listening(create_app(service)))
        else:
            (tmp_path / "team").mkdir()
            url = f"file://{tmp_path / 'team'}"
        yield Kept(lab, Remote("team", url, "", options), lab.states(10), stack)


FOLDER, SERVICE = (pytest.mark.parametrize("kept", [kind], indirect=True) for kind in ("folder", "service"))


def present(registry: Registry, ref: Ref = RUN) -> list[int]:
    """Versions of a tag of which an artifact is there, links before anchors."""
    there = []
    for entry in registry.history(ref):
        try:
            registry.artifact(entry.digest or Digest.of(b""))
            there.append(version_of(entry))
        except NotFoundError:
            continue
    return there


def test_old_links_expire_and_followers_go_by_the_anchor(kept: Kept) -> None:
    ada, bob = kept.space("ada"), kept.space("bob")
    publisher, remote = kept.publisher(ada, keep_links=2, keep_every=8), bob.remote("team")
    early, near = kept.follower(bob, "early"), kept.follower(bob, "near")
    for step in range(1, 10):
        assert publisher.publish(kept.steps[step], meta={"step": str(step)}) is not None
        if step == 1:
            early.step()
        if step in (3, 7):
            near.step()
    # Version 4 was an anchor, and has expired; 8 is kept, with its link, which is one of the two newest but one.
    for registry in (ada.local, remote):
        assert present(registry) == [7, 8, 8, 9]
    assert remote.head(RUN.with_tag("v8")).digest == remote.history(RUN)[-2].digest  # type: ignore[union-attr]
    # 1 -> 9: the link to 2 is gone, so it begins again, at the anchor.
    followed = step_of(early)
    assert (followed.links, followed.card.meta["step"]) == (2, "9")
    # 7 -> 9: over the link to 8 that the tag has left; it has no source to begin again from.
    near.close()
    for out, source in (("near", 10), ("new", 0)):
        assert step_of(kept.follower(bob, out, source)).links == 2
    assert all(kept.is_at(9, out) for out in ("early", "near", "new"))
    # What is kept is an update of its own.
    maskreg.pull(RUN.with_tag("v8"), parts=["delta"], workspace=bob)
    applied = maskreg.apply(RUN.with_tag("v8"), kept.steps[0], kept.lab.folder / "v8", workspace=bob)
    assert contents(applied.out)["model.safetensors"] == contents(kept.steps[8])["model.safetensors"]


@FOLDER
def test_a_link_whose_lease_is_not_over_stays(kept: Kept) -> None:
    ada = kept.space("ada")
    publisher = kept.publisher(ada, keep_links=1, lease_s=3600)
    kept.publish(publisher, *range(1, 10))
    for registry in (ada.local, ada.remote("team")):
        assert present(registry) == [1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9]


@SERVICE
def test_what_expires_while_it_is_read_is_gone_around(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    ada, bob = kept.space("ada"), kept.space("bob")
    publisher, follower = kept.publisher(ada), kept.follower(bob, "served")
    publisher.publish(kept.steps[1])
    follower.step()
    kept.publish(publisher, *range(2, 6))
    brought: list[object] = []

    def slow(*args: Any, **how: Any) -> Any:
        # The way is decided; before its second link is read, all but the latest version expires.
        if brought:
            expire(ada.remote("team"), RUN, 1)
        brought.append(args)
        return bring(*args, **how)

    monkeypatch.setattr("maskreg.registry.chains.bring", slow)
    with pytest.raises((NotFoundError, MissingLinkError)):
        follower.step()
    assert kept.is_at(1, "served")
    assert step_of(follower).links == 2
    assert kept.is_at(5, "served")


@pytest.mark.parametrize("kept", ["bucket"], indirect=True)
def test_two_publishers_of_one_run_share_its_anchors(kept: Kept) -> None:
    ada, bob = kept.space("ada"), kept.space("bob")
    publishers = [kept.publisher(ada, keep_links=2) for _ in range(2)]
    for step in range(1, 10):
        publishers[step % 2].publish(kept.steps[step])
    assert present(ada.remote("team")) == [7, 8, 8, 9]
    # One elsewhere, which has not seen what the first one did since it began, is refused; nothing is lost.
    other = kept.publisher(bob, keep_links=2)
    other.prepare()
    publishers[0].publish(kept.steps[10])
    with pytest.raises(ConflictError):
        other.publish(kept.steps[3])
    follower = kept.follower(kept.space("carol"), "served")
    follower.step()
    assert kept.is_at(10, "served")


@FOLDER
@pytest.mark.parametrize("fault", ["squash", "keep_version", "expire"])
def test_what_was_not_finished_is_made_up_for(kept: Kept, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ada, bob = kept.space("ada"), kept.space("bob")
    publisher = kept.publisher(ada, keep_links=2, keep_every=4)
    kept.publish(publisher, *range(1, 4))

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"maskreg.workspace.verbs.publish.{fault}", killed)
        with pytest.raises(KeyboardInterrupt):
            publisher.publish(kept.steps[4])
    follower = kept.follower(bob, "served")
    follower.step()
    assert kept.is_at(4, "served")
    again = kept.publisher(ada, keep_links=2, keep_every=4)
    kept.publish(again, *range(5, 10))
    follower.step()
    assert kept.is_at(9, "served")
    remote = ada.remote("team")
    assert [version_of(remote.head(RUN.with_tag(tag))) for tag in ("v4", "v8")] == [4, 8]
    assert min(number for number in present(remote) if number != 4) == 7
    # All that is left hangs together.
    for registry in (ada.local, remote):
        assert not registry.find_damage()


@SERVICE
def test_only_what_a_run_has_published_expires(kept: Kept) -> None:
    ada = kept.space("ada")
    precious = maskreg.extract(kept.steps[0], kept.steps[6], RUN, workspace=ada).digest
    maskreg.push(RUN, workspace=ada)
    publisher = kept.publisher(ada, keep_links=1)
    publisher.publish(kept.steps[1])
    first = ada.find(RUN).digest
    maskreg.tag(RUN, "best", workspace=ada)
    maskreg.push(RUN.with_tag("best"), workspace=ada)
    kept.publish(publisher, *range(2, 6))
    maskreg.tag(RUN, "best", workspace=ada)
    maskreg.push(RUN.with_tag("best"), workspace=ada)
    for registry in (ada.local, ada.remote("team")):
        # The tag best has moved on, but it is restored as any tag.
        assert {registry.artifact(digest).digest for digest in (precious, first)} == {precious, first}
        assert present(registry)[-1] == 5


@FOLDER
def test_garbage_collection_takes_what_anchors_replace(kept: Kept) -> None:
    ada = kept.space("ada")
    publisher = kept.publisher(ada)
    kept.publish(publisher, *range(1, 7))
    assert present(ada.local) == [1, 2, 3, 4, 4, 5, 6]
    collect(ada.local, timedelta(), delete_many=True)
    assert present(ada.local) == [4, 5, 6]
    publisher.publish(kept.steps[7])


@FOLDER
def test_what_makes_no_sense_is_refused(kept: Kept) -> None:
    ada = kept.space("ada")
    for how in ({"anchor_every": 0}, {"keep_links": 0}, {"keep_every": 0}, {"lease_s": -1}):
        with pytest.raises(UsageError):
            kept.publisher(ada, **how)
