"""What is attacked: two people, a remote on disk or in a bucket, artifacts of every kind, tags with a history."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from maskreg.settings import StoreOptions
from maskreg.store import FileStore, Store, open_store
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved
from tests.e2e.attack.people import Member

SOURCE: dict[str, Tensor] = {
    "model.embed_tokens.weight": bf16((24, 16), 1),
    "model.layers.0.self_attn.q_proj.weight": bf16((16, 16), 2),
    "model.layers.0.mlp.up_proj.weight": bf16((32, 16), 3),
}
CONFIG = {"config.json": b'{"architectures": ["LlamaForCausalLM"]}\n'}
TUNED = {"config.json": b'{"architectures": ["LlamaForCausalLM"], "tuned": true}\n'}

_KINDS = {
    r".*/?artifacts/sha256/[0-9a-f]{64}/manifest\.json": "manifest",
    r".*/?artifacts/sha256/[0-9a-f]{64}/tensors\.json": "tensors",
    r".*/?artifacts/sha256/[0-9a-f]{64}/analysis\.json": "analysis",
    r".*/?artifacts/sha256/[0-9a-f]{64}/.*zarr\.json": "zarr.json",
    r".*/?artifacts/sha256/[0-9a-f]{64}/data\.zarr/leaves/.*": "leaves",
    r".*/?artifacts/sha256/[0-9a-f]{64}/data\.zarr/.*": "chunks",
    r".*/?artifacts/sha256/[0-9a-f]{64}/.*files/.*": "files",
    r"(maskreg/)?refs/.*": "refs",
    r"(maskreg/)?maskreg\.json": "identity",
    r"maskreg/catalog\.db.*": "catalog",
    r"maskreg/seen/.*": "seen",
    r"maskreg/tracked/.*": "tracked",
    r"config\.toml": "config",
    r".*\.ndjson": "pipe",
}


def kind_of(key: str) -> str:
    """What kind of object a key names; a folder of its own counts as a kind."""
    own = key.removeprefix("maskreg/").split("/")[0]
    return next((kind for pattern, kind in _KINDS.items() if re.fullmatch(pattern, key)), own)


@dataclass(frozen=True)
class Site:
    """Where a remote is.

    Attributes:
        url: of the store.
        endpoint: of the S3 service; empty for a folder.
        variables: environment of its users.
    """

    url: str
    endpoint: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    def store(self) -> Store:
        """The store itself, for attacks that damage it."""
        return open_store(self.url, StoreOptions(endpoint=self.endpoint))

    def add_to(self, member: Member) -> None:
        """Make it a user's remote ``team``."""
        member.must("remote", "add", "team", self.url, *(["--endpoint", self.endpoint] if self.endpoint else []))


@dataclass(frozen=True)
class Stage:
    """Two people and what they share.

    Attributes:
        folder: everything is in it.
        site: the remote.
        ada: has made everything, and pushed it.
        bob: has pulled everything once.
        carol: knows the remote, and has never used it.
        source: the checkpoint that artifacts are applied to.
        target: what ``opd`` makes of it.
        digests: of the named artifacts.
        older: bytes that an object had before, by key; keys of ada's home begin with ``maskreg/``.
    """

    folder: Path
    site: Site
    ada: Member
    bob: Member
    carol: Member
    source: Path
    target: Path
    digests: dict[str, str]
    older: dict[str, list[bytes]]

    def artifact(self, member: Member, name: str) -> Path:
        """Where an artifact is in a user's registry."""
        return member.registry / "artifacts" / "sha256" / self.digests[name].removeprefix("sha256:")

    def fresh(self) -> Member:
        """Carol, with an empty registry."""
        shutil.rmtree(self.carol.home, ignore_errors=True)
        self.carol.home.mkdir()
        # As ``remote add`` leaves it; adding takes longer than what follows.
        shutil.copy(self.bob.home / "config.toml", self.carol.home / "config.toml")
        return self.carol


def checkpoints(folder: Path) -> tuple[Path, Path, Path]:
    """A source, and what two trainings make of it; the first one changes a small file as well."""
    source = make_checkpoint(folder / "source", SOURCE, files=CONFIG)
    targets = []
    for name, fraction, files in (("opd", 0.4, TUNED), ("rlvr", 0.3, CONFIG)):
        tensors = {key: moved(tensor, fraction, len(key) + len(name)) for key, tensor in SOURCE.items()}
        targets.append(make_checkpoint(folder / name, tensors, files=files))
    return source, targets[0], targets[1]


def set_up(folder: Path, site: Site) -> Stage:
    """Artifacts of every kind in ada's registry, some of them on the remote and in bob's registry."""
    source, opd, rlvr = checkpoints(folder)
    ada, bob, carol = (Member(folder / name, site.variables) for name in ("ada", "bob", "carol"))
    stage = Stage(folder, site, ada, bob, carol, source, opd, {}, {})
    for member in (ada, bob):
        site.add_to(member)
    before = ada.home / "config.toml"
    stage.older["config.toml"] = [before.read_bytes()]
    toy = ("--family", "toy", "--method", "opd")
    steps: list[tuple[str | Path, ...]] = [
        ("extract", source, opd, "--name", "opd", "--reversible", *toy),
        ("extract", source, rlvr, "--name", "rlvr", "--family", "toy", "--method", "rlvr"),
        ("push", "opd"),
        ("push", "rlvr"),
        ("tag", "rlvr", "best"),
        ("push", "rlvr:best"),
        ("tag", "opd", "rlvr:best"),
        ("push", "rlvr:best"),
        ("baseline", "opd", "--kind", "random-per-tensor", "--name", "opd-null"),
        ("analyze", "opd", "--source", source, "--name", "opd-analysis"),
        ("compare", "opd", "rlvr", "--source", source, "--record"),
        ("push", "opd-analysis"),
        ("annotate", "opd", "--license", "mit"),
        ("tag", "rlvr", "old"),
        ("rm", "-y", "rlvr:old"),
        ("extract", opd, rlvr, "--name", "gone"),
        ("rm", "-y", "gone"),
        ("gc",),
        ("gc", "--remote", "team"),
        ("config", "set", "jobs", "2"),
        ("verify", "--all"),
    ]
    for step in steps:
        ada.must(*step)
        _remember(stage.older, ada.home)
    for name in ("opd", "rlvr", "rlvr:best", "opd-analysis"):
        stage.digests[name] = bob.must("pull", name).json_lines[0]["digest"]
    (ada.home / "pull.ndjson").write_text(bob.must("pull", "opd").out)
    return stage


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path from there."""
    skipped = len(str(folder)) + 1
    return {str(path)[skipped:]: path.read_bytes() for path in sorted(files(folder))}


def files(folder: Path) -> Iterator[Path]:
    """Every file below a folder; none when there is no such folder."""
    return (Path(top, name) for top, _, names in os.walk(folder) for name in names)


def lay_out(folder: Path, objects: Mapping[str, bytes]) -> None:
    """Make a folder hold these files and nothing else, at the cost of what differs."""
    folder.mkdir(parents=True, exist_ok=True)
    present = contents(folder)
    for key in present.keys() - objects:
        (folder / key).unlink()
    for key, data in objects.items():
        if present.get(key) != data:
            (folder / key).parent.mkdir(parents=True, exist_ok=True)
            (folder / key).write_bytes(data)
    for top, folders, names in os.walk(folder, topdown=False):
        if not names and top != str(folder) and not any(Path(top, name).exists() for name in folders):
            Path(top).rmdir()
    for inner in folder.iterdir():
        if inner.is_dir():
            inner.chmod(0o700)  # As maskreg makes its folders; doctor mentions any other.


def stored(store: Store) -> dict[str, bytes]:
    """Every object of a store."""
    if isinstance(store, FileStore):
        return contents(store.root)
    return {info.key: store.get(info.key, max_bytes=1 << 26) for info in store.list("")}


def _remember(older: dict[str, list[bytes]], home: Path) -> None:
    for key, data in contents(home).items():
        versions = older.setdefault(key, [])
        if data not in versions:
            versions.append(data)
