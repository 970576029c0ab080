"""Versions on one machine: made once, checked, and opened by every process that serves them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import maskreg
from maskreg import errors
from maskreg.flow.chain import root_of
from maskreg.sync.node import LATEST, NodeVersions, Version
from tests.checkpoints import bf16, make_checkpoint
from tests.workspace.conftest import SOURCE, Lab, Run, contents

Opener = Callable[..., NodeVersions]


@pytest.fixture
def open_node(lab: Lab, run: Run) -> Iterator[Opener]:
    """Opens the versions of the run as bob's machine keeps them."""
    with ExitStack() as opened:

        def open_versions(source: Path | None = None, **how: Any) -> NodeVersions:
            here = {"remote": "team", "folder": lab.folder / "node", "workspace": run.bob, **how}
            return opened.enter_context(NodeVersions("toy/run", source or run.steps[0], **here))

        yield open_versions


def values(run: Run, step: int) -> bytes:
    return contents(run.steps[step])["model.safetensors"]


def read(versions: NodeVersions, version: Version) -> bytes:
    """The file of a version that is opened, and is what its root says."""
    with versions.opened(version) as checkpoint:
        assert root_of(checkpoint) == version.root
        return (Path(str(checkpoint.path)) / "model.safetensors").read_bytes()


def test_the_latest_version_and_any_earlier_one(run: Run, open_node: Opener) -> None:
    versions = open_node()
    links = [run.publish(1), run.publish(2)]
    latest = versions.find(LATEST)
    assert latest.digest == links[1].digest
    assert not versions.is_here(latest)
    assert read(versions, latest) == values(run, 2)
    assert versions.is_here(latest)
    run.publish(3, 4)
    for number, link in enumerate(links, 1):
        for name in (str(link.digest), link.digest.short, f"toy/run@{link.digest}"):
            assert versions.find(name).digest == link.digest
        assert read(versions, versions.find(str(link.digest))) == values(run, number)
    assert read(versions, versions.find(LATEST)) == values(run, 4)


def test_a_version_is_made_once_for_all_processes(lab: Lab, run: Run, open_node: Opener) -> None:
    run.publish(1, 2)
    everyone = [open_node() for _ in range(4)]
    version = everyone[0].find(LATEST)
    with ThreadPoolExecutor(4) as threads:
        files = list(threads.map(lambda versions: read(versions, version), everyone))
    assert files == [values(run, 2)] * 4
    made = versions_in(everyone[0])
    assert len(made) == 1
    # What is there needs neither the source nor the remote.
    shutil.rmtree(lab.folder / "team")
    before = made[0].stat().st_mtime_ns
    assert read(open_node(), version) == values(run, 2)
    assert versions_in(everyone[0])[0].stat().st_mtime_ns == before


def versions_in(versions: NodeVersions) -> list[Path]:
    return [path for path in versions.folder.iterdir() if len(path.name) == 64]


def test_old_versions_and_links_go(run: Run, open_node: Opener) -> None:
    versions = open_node()
    run.publish(1)
    first = versions.find(LATEST)
    with versions.opened(first) as checkpoint:
        for number in (2, 3, 4):
            run.publish(number)
            read(versions, versions.find(LATEST))
        assert not versions.is_here(first)
        assert root_of(checkpoint) == first.root  # a reader that has it open reads on
    assert len(versions_in(versions)) == 2
    assert not list(versions.folder.glob("links/artifacts/**/*"))


def test_what_was_changed_on_disk_is_made_again(run: Run, open_node: Opener) -> None:
    run.publish(1)
    version = open_node().find(LATEST)
    path = open_node().folder
    read(open_node(), version)
    weights = path / version.root.removeprefix("sha256:") / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-3] ^= 1
    for changed in (bytes(data), data[:-40], b""):
        weights.write_bytes(changed)
        assert read(open_node(), version) == values(run, 1)
    # As the base of the next one too.
    weights.write_bytes(data)
    run.publish(2)
    versions = open_node()
    assert read(versions, versions.find(LATEST)) == values(run, 2)
    assert not versions.is_here(version)


def test_the_source_may_be_any_state_of_the_run_and_no_other(lab: Lab, run: Run, open_node: Opener) -> None:
    run.publish(1, 2, 3)
    for number in (1, 3):
        versions = open_node(run.steps[number], folder=lab.folder / f"node-{number}")
        assert read(versions, versions.find(LATEST)) == values(run, 3)
    other = make_checkpoint(lab.folder / "other", {name: bf16(tensor[1].shape, 99) for name, tensor in SOURCE.items()})
    for stranger in (lab.target, other):
        versions = open_node(stranger)
        with pytest.raises(errors.NotOnChainError):
            read(versions, versions.find(LATEST))
        assert versions_in(versions) == []


def test_a_damaged_link_gives_nothing(lab: Lab, run: Run, open_node: Opener) -> None:
    run.publish(1)
    versions = open_node()
    first = versions.find(LATEST)
    read(versions, first)
    link = run.publish(2)
    folder = lab.folder / "team/artifacts/sha256" / link.digest.hex
    damaged = next(
        path for path in sorted((folder / "data.zarr/delta").rglob("*")) if path.name != "zarr.json" and path.is_file()
    )
    data = damaged.read_bytes()
    damaged.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    second = versions.find(LATEST)
    with pytest.raises(errors.CorruptError):
        read(versions, second)
    assert [path.name for path in versions_in(versions)] == [first.root.removeprefix("sha256:")]
    damaged.write_bytes(data)
    assert read(versions, second) == values(run, 2)


def test_what_is_not_there_is_named(lab: Lab, run: Run, open_node: Opener) -> None:
    versions = open_node()
    with pytest.raises(errors.NotFoundError):
        versions.find(LATEST)
    link = run.publish(1)
    for unknown in ("sha256:" + "0" * 64, "sha256:000000"):
        with pytest.raises((errors.MissingLinkError, errors.NotFoundError)):
            versions.find(unknown)
    with pytest.raises(errors.UsageError):
        versions.find(3)  # type: ignore[arg-type]
    run.publish(2)
    shutil.rmtree(lab.folder / "team/artifacts/sha256" / link.digest.hex)
    with pytest.raises(errors.MissingLinkError):
        read(versions, versions.find(LATEST))
    with pytest.raises(errors.UsageError):
        NodeVersions(f"toy/run@{link.digest}", run.steps[0], workspace=run.bob)
    with pytest.raises(errors.NotFoundError):
        open_node(lab.folder / "nowhere")
    with pytest.raises(errors.ConfigError):
        open_node(remote="nowhere")


def test_a_mask_is_no_version(lab: Lab, run: Run, open_node: Opener) -> None:
    run.publish(1)
    mask = maskreg.extract(lab.source, lab.target, "toy/mask:v1", mask_only=True, workspace=run.ada)
    maskreg.push("toy/mask:v1", remote="team", workspace=run.ada)
    versions = open_node()
    with pytest.raises(errors.BrokenChainError):
        read(versions, versions.find(str(mask.digest)))


@pytest.mark.parametrize("by", ["path", "url", "nothing"])
def test_a_registry_is_named_by_where_it_is_or_is_the_local_one(lab: Lab, run: Run, by: str) -> None:
    run.publish(1)
    where = lab.folder / "team"
    with lab.workspace("carol") as carol:  # who has no remote
        remote = {"path": str(where), "url": f"file://{where}", "nothing": None}[by]
        if not remote:
            maskreg.publish(run.steps[1], "toy/run", source=run.steps[0], workspace=carol)
        with NodeVersions("toy/run", run.steps[0], remote=remote, workspace=carol) as versions:
            assert read(versions, versions.find(LATEST)) == values(run, 1)
            assert versions.folder.is_relative_to(carol.root)
