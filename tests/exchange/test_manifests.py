"""Folders with a manifest, SkyRL's and NeMo RL's: applied as these projects apply them, refused damaged or hostile."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from numcodecs import Zstd

import maskreg
from maskreg.errors import CorruptError, DataError, FormatError, UsageError
from tests.checkpoints import make_checkpoint
from tests.exchange.conftest import Lab
from tests.exchange.test_slime import parsed, tensors_of

HALF, MANIFEST = "model.half.weight", "manifest.json"
SKYRL_FILE, NEMO_FILE = "delta-rank00000-file000000.safetensors", "000000.pt"

torch_only = pytest.mark.torch
BOTH = [pytest.param("skyrl"), pytest.param("nemo-rl", marks=torch_only)]


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def written(lab: Lab, name: str) -> Path:
    """A folder that another tool might have written: without maskreg's lineage."""
    out = lab.folder / "out"
    maskreg.convert_to("toy:v1", name, out, source=lab.source, workspace=lab.space)
    edit(out, lambda manifest: manifest.pop("maskreg"))
    return out


def test_skyrl_applies_a_version_to_its_base(lab: Lab) -> None:
    out, tensors = lab.folder / "delta-00000001", tensors_of(lab.source)
    maskreg.convert_to("toy:v1", "skyrl", out, workspace=lab.space)
    manifest = json.loads((out / MANIFEST).read_text())
    assert (manifest["version"], manifest["base_version"], manifest["payload_files"]) == (1, 0, [SKYRL_FILE])
    header, _, data = parsed(out / SKYRL_FILE)
    for record in manifest["tensors"]:
        assert record["payload_file"] == SKYRL_FILE
        frame = data[slice(*header[record["payload_key"]]["data_offsets"])]
        assert len(frame) == record["compressed_num_bytes"]
        old, delta = (np.frombuffer(each, np.uint8) for each in (tensors[record["name"]], Zstd().decode(frame)))
        assert record["uncompressed_num_bytes"] == delta.size
        tensors[record["name"]] = (old ^ delta).tobytes()
        assert xxhash.xxh3_128_hexdigest(tensors[record["name"]]) == record["checksum"]
    assert tensors == tensors_of(lab.target)
    with pytest.raises(UsageError):
        maskreg.convert_to("toy:v1", "skyrl", out, options={"version": 0}, force=True, workspace=lab.space)


@torch_only
@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
def test_nemo_rl_applies_payloads_to_its_weights(lab: Lab, encoding: str) -> None:
    out, tensors = lab.folder / "out", tensors_of(lab.source)
    maskreg.convert_to("toy:v1", "nemo-rl", out, options={"encoding": encoding}, workspace=lab.space)
    kinds = set()
    for pointer in json.loads((out / MANIFEST).read_text())["payloads"]:
        assert hashlib.blake2b((out / pointer["key"]).read_bytes(), digest_size=16).hexdigest() == pointer["checksum"]
        locations, groups, items = loaded(out / pointer["key"])
        for item in items:
            assert item["operation"] == encoding
            values = groups[item["value_group"]][item["value_start"] : item["value_end"]].numpy()
            places = np.arange(item.get("range_start", 0), item.get("range_start", 0) + values.size)
            if item["index_encoding"] == "deltas":
                raw = locations[item["index_start"] : item["index_end"]].numpy()
                kinds.add(raw.size // values.size)
                places = np.cumsum(raw.view(f"<u{raw.size // values.size}").astype(np.int64) + 1) - 1
            bits = np.frombuffer(tensors[item["name"]], values.dtype).copy()
            bits[places] = bits[places] ^ values if encoding == "xor" else values
            tensors[item["name"]] = bits.tobytes()
    assert tensors == tensors_of(lab.target)
    assert kinds == {2}
    with pytest.raises(UsageError):
        maskreg.convert_to("toy:v1", "nemo-rl", out, options={"encoding": "gap"}, force=True, workspace=lab.space)


@torch_only
def test_gaps_have_the_narrowest_width_that_holds_them(lab: Lab) -> None:
    tall = ("BF16", np.zeros((2, 70_000), np.uint16))
    moved = ("BF16", tall[1].copy())
    moved[1].reshape(-1)[[1, 2, 69_999, 139_999]] = 7
    source, target = (make_checkpoint(lab.folder / name, {"w": tensor}) for name, tensor in (("a", tall), ("b", moved)))
    stored = maskreg.extract(source, target, "wide", workspace=lab.space)
    maskreg.convert_to("wide", "nemo-rl", lab.folder / "out", source=source, workspace=lab.space)
    locations, _, (item,) = loaded(lab.folder / "out" / NEMO_FILE)
    assert locations.numpy().view("<u4").tolist() == [1, 0, 69_996, 69_999]
    assert (item["index_start"], item["index_end"]) == (0, 16)
    back = maskreg.convert_from(lab.folder / "out", "nemo-rl", source, "back", workspace=lab.space)
    assert back.digest == stored.digest


@pytest.mark.parametrize("name", BOTH)
def test_a_folder_of_another_tool_gives_the_target(lab: Lab, name: str) -> None:
    back = maskreg.convert_from(written(lab, name), name, lab.source, "back", workspace=lab.space)
    assert back.manifest.target.root == lab.toy.manifest.target.root


@pytest.mark.parametrize("name", BOTH)
def test_several_files_give_the_target(lab: Lab, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskreg.exchange.nemo_rl.PAYLOAD_BYTES", 1_000)
    monkeypatch.setattr("maskreg.exchange.skyrl.FILE_BYTES", 1_000)
    out = written(lab, name)
    assert len(list(out.glob("*.pt" if name == "nemo-rl" else "*.safetensors"))) > 2
    back = maskreg.convert_from(out, name, lab.source, "back", workspace=lab.space)
    assert back.manifest.target.root == lab.toy.manifest.target.root


@pytest.mark.parametrize("name", BOTH)
def test_a_small_file_with_the_name_of_the_manifest_is_refused(lab: Lab, name: str) -> None:
    (lab.target / MANIFEST).write_text("{}")
    maskreg.extract(lab.source, lab.target, "clash", workspace=lab.space)
    with pytest.raises(UsageError):
        maskreg.convert_to("clash", name, lab.folder / "out", workspace=lab.space)


def loaded(path: Path) -> Any:
    import torch

    return torch.load(io.BytesIO(Zstd().decode(path.read_bytes())), weights_only=True)


def packed(folder: Path, saved: object) -> None:
    """Put another payload in the place of the only one, with its checksum."""
    import torch

    buffer = io.BytesIO()
    torch.save(saved, buffer)
    framed(folder, bytes(Zstd(1).encode(buffer.getvalue())))


def framed(folder: Path, frame: bytes) -> None:
    (folder / NEMO_FILE).write_bytes(frame)
    digest = hashlib.blake2b(frame, digest_size=16).hexdigest()
    edit(folder, lambda manifest: manifest["payloads"][0].update(checksum=digest))


def of(change: dict[str, Any]) -> Callable[[Path], None]:
    """Change what SkyRL's manifest says of a tensor."""
    return lambda folder: edit(folder, lambda m: next(r for r in m["tensors"] if r["name"] == HALF).update(change))


def item(**change: Any) -> Callable[[Path], None]:
    """Change what NeMo RL's payload says of a tensor."""

    def apply(folder: Path) -> None:
        locations, groups, items = loaded(folder / NEMO_FILE)
        packed(folder, (locations, groups, [{**each, **change} if each["name"] == HALF else each for each in items]))

    return apply


def cut(name: str) -> Callable[[Path], None]:
    """Cut a file short."""

    def apply(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:-9])

    return apply


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("ran",)


SKYRL: dict[str, tuple[Callable[[Path], object], type[DataError], str]] = {
    "no checksum": (of({"checksum": ""}), FormatError, HALF),
    "wrong checksum": (of({"checksum": "0" * 32}), CorruptError, HALF),
    "unknown checksum": (of({"checksum_algorithm": "md5"}), FormatError, HALF),
    "other dtype": (of({"dtype": "bfloat16"}), FormatError, HALF),
    "other shape": (of({"shape": [3, 30]}), FormatError, HALF),
    "other payload": (of({"payload_key": "model.router.bias"}), FormatError, HALF),
    "unknown": (of({"name": "model.nothing", "payload_key": "model.nothing"}), FormatError, HALF),
    "twice": (lambda f: edit(f, lambda m: m["tensors"].append(m["tensors"][0])), FormatError, MANIFEST),
    "missing": (lambda f: edit(f, lambda m: m["tensors"].pop()), FormatError, "model."),
    "no base": (lambda f: edit(f, lambda m: m.update(version=7)), FormatError, MANIFEST),
    "no number": (lambda f: edit(f, lambda m: m.update(version="1")), FormatError, MANIFEST),
    "path": (lambda f: edit(f, lambda m: m.update(payload_files=["../x.safetensors"])), FormatError, MANIFEST),
    "cut": (cut(SKYRL_FILE), CorruptError, SKYRL_FILE),
}
NEMO: dict[str, tuple[Callable[[Path], object], type[DataError], str]] = {
    "no checksum": (lambda f: edit(f, lambda m: m["payloads"][0].pop("checksum")), FormatError, MANIFEST),
    "path": (lambda f: edit(f, lambda m: m["payloads"][0].update(key="../x.pt")), FormatError, MANIFEST),
    "payload twice": (lambda f: edit(f, lambda m: m.update(payloads=2 * m["payloads"])), FormatError, "model."),
    "cut": (cut(NEMO_FILE), CorruptError, NEMO_FILE),
    "bomb": (lambda f: framed(f, b"\x28\xb5\x2f\xfd\xc0\x00" + b"\xff" * 12), FormatError, NEMO_FILE),
    "half a frame": (lambda f: framed(f, (f / NEMO_FILE).read_bytes()[:-9]), CorruptError, NEMO_FILE),
    "no tensors": (lambda f: packed(f, (1, (2,), [])), FormatError, NEMO_FILE),
    "no tuple": (lambda f: packed(f, {}), FormatError, NEMO_FILE),
    "harmful": (lambda f: packed(f, Harmful()), FormatError, NEMO_FILE),
    "other dtype": (item(dtype="bfloat16"), FormatError, HALF),
    "other shape": (item(shape=(3, 30)), FormatError, HALF),
    "unknown": (item(name="model.nothing"), FormatError, "model.nothing"),
    "other operation": (item(operation="add"), FormatError, NEMO_FILE),
    "no group": (item(value_group=2), FormatError, HALF),
    "other width": (item(value_group=1, value_start=0, value_end=1), FormatError, HALF),
    "outside its group": (item(value_end=1 << 40), FormatError, HALF),
    "too few gaps": (item(index_start=0, index_end=1), FormatError, HALF),
    "index beyond": (item(index_encoding="range", range_start=90), FormatError, HALF),
    "index before": (item(index_encoding="range", range_start=-1), FormatError, NEMO_FILE),
}
CASES = [
    *(pytest.param("skyrl", *case, id=f"skyrl: {kind}") for kind, case in SKYRL.items()),
    *(pytest.param("nemo-rl", *case, id=f"nemo-rl: {kind}", marks=torch_only) for kind, case in NEMO.items()),
]


@pytest.mark.parametrize(("name", "damage", "error", "where"), CASES)
def test_a_damaged_folder_is_refused_by_name(
    lab: Lab, name: str, damage: Callable[[Path], object], error: type[DataError], where: str
) -> None:
    folder = written(lab, name)
    damage(folder)
    before = sorted((lab.folder / "home").rglob("*"))
    with pytest.raises(error, match=where.replace(".", r"\.")):
        maskreg.convert_from(folder, name, lab.source, "back", workspace=lab.space)
    assert sorted((lab.folder / "home").rglob("*")) == before


def test_checksums_of_the_target_tell_another_source_without_lineage(lab: Lab) -> None:
    with pytest.raises(CorruptError, match=r"\bmodel\."):
        maskreg.convert_from(written(lab, "skyrl"), "skyrl", lab.target, "back", workspace=lab.space)
