from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.errors import AlreadyAppliedError, WrongCheckpointError
from maskreg.flow.apply.on_disk import apply
from maskreg.tensors.cast import to_bf16
from tests.checkpoints import Tensor, bf16, f32, make_checkpoint, make_pair, moved, widened
from tests.flow.making import BLOCK, LEAF, NewMemory, bits, edge_pair, extracted, left_over, opened, stored


def goes_and_comes_back(artifact: Artifact, source: Checkpoint, target: Checkpoint, folder: Path) -> None:
    apply(artifact, source, folder / "out")
    assert stored(folder / "out") == stored(Path(str(target.path)))
    apply(artifact, target, folder / "back", revert=True)
    assert stored(folder / "back") == stored(Path(str(source.path)))


in_tmp = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("jobs", [1, 4])
def test_every_edge_comes_out_bit_for_bit_and_goes_back(shards: int, jobs: int, tmp_path: Path) -> None:
    before, after = edge_pair()
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        before[name], after[name] = bf16((300, 8), 8), moved(bf16((300, 8), 8), 0.3)
    source, target = opened(tmp_path, before, after, shards=shards)
    artifact = extracted(tmp_path / "root", source, target, reversible=True)
    assert len(artifact.tensors) == 12  # tied weights are stored once
    done = apply(artifact, source, tmp_path / "out", jobs=jobs)
    assert (done.out, done.tensors, done.skipped_files, done.notes) == (tmp_path / "out", 13, (), ())
    assert done.kept_files == ()
    assert stored(tmp_path / "out") == stored(tmp_path / "target")
    for made in (tmp_path / "out").iterdir():
        assert made.read_bytes() == (tmp_path / "target" / made.name).read_bytes(), made.name
    assert done.bytes == sum(made.stat().st_size for made in done.out.iterdir())
    apply(artifact, open_checkpoint(tmp_path / "out"), tmp_path / "back", revert=True, jobs=jobs)
    for made in (tmp_path / "source").iterdir():
        assert made.read_bytes() == (tmp_path / "back" / made.name).read_bytes(), made.name


@st.composite
def pairs(draw: st.DrawFn) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    source: dict[str, Tensor] = {}
    target: dict[str, Tensor] = {}
    for number in range(draw(st.integers(1, 4))):
        dtype = draw(st.sampled_from(["BF16", "F16"]))
        shape = tuple(draw(st.lists(st.integers(0, 9), max_size=3)))
        rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
        before = rng.integers(0, 1 << 16, shape).astype(np.uint16)
        change = rng.integers(0, 1 << draw(st.integers(0, 16)), shape).astype(np.uint16)
        keep = rng.random(shape) < draw(st.floats(0, 1))
        source[f"t{number}"] = bits(before, dtype)
        target[f"t{number}"] = bits(np.where(keep, before, before ^ change), dtype)
    return source, target


@in_tmp
@given(pair=pairs())
def test_any_pair_comes_out_bit_for_bit_and_goes_back(
    pair: tuple[dict[str, Tensor], dict[str, Tensor]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    tmp_path = tmp_path_factory.mktemp("pair")
    source, target = opened(tmp_path, *pair)
    artifact = extracted(tmp_path / "root", source, target, reversible=True)
    goes_and_comes_back(artifact, source, target, tmp_path)


class TestWrongSource:
    """One bit anywhere in the source, and nothing is written."""

    @in_tmp
    @given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), part=st.sampled_from(["source", "target"]))
    def test_one_flipped_bit_is_noticed(
        self, place: float, bit: int, part: str, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        tmp_path = tmp_path_factory.mktemp("pair")
        source, target = opened(tmp_path, *edge_pair())
        artifact = extracted(tmp_path / "root", source, target, reversible=True)
        weights = tmp_path / part / "model.safetensors"
        data = bytearray(weights.read_bytes())
        start = 8 + int.from_bytes(data[:8], "little")
        data[start + int(place * (len(data) - start))] ^= 1 << bit
        weights.write_bytes(data)
        with pytest.raises(WrongCheckpointError) as caught:
            apply(artifact, open_checkpoint(tmp_path / part), tmp_path / "out", revert=part == "target")
        assert "already" not in str(caught.value)
        assert left_over(tmp_path) == ["root", "source", "target"]

    @pytest.mark.parametrize("name", ["w", "stays", "gone", "whole"])
    def test_between_the_ends_of_any_kind_of_tensor(self, name: str, tmp_path: Path) -> None:
        large = bf16((3 * LEAF,), 1)
        wide = f32((3 * LEAF,), 1)
        source = {"w": large, "stays": large, "gone": large, "whole": wide}
        target = {"w": moved(large, 0.1), "stays": large, "whole": f32((3 * LEAF,), 2)}
        artifact = extracted(tmp_path / "root", *opened(tmp_path, source, target), allow_mismatch=True)
        dtype, codes = source[name]
        codes = codes.copy()
        codes[LEAF + 1] ^= 1
        wrong = make_checkpoint(tmp_path / "wrong", {**source, name: (dtype, codes)})
        with pytest.raises(WrongCheckpointError, match="262144") as caught:
            apply(artifact, open_checkpoint(wrong), tmp_path / "out")
        assert caught.value.tensor == name
        assert left_over(tmp_path) == ["root", "source", "target", "wrong"]

    def test_the_target_itself_is_recognized(self, tmp_path: Path) -> None:
        source, target = opened(tmp_path, *edge_pair())
        artifact = extracted(tmp_path / "root", source, target, reversible=True)
        with pytest.raises(AlreadyAppliedError) as caught:
            apply(artifact, target, tmp_path / "out")
        assert caught.value.facts["revertible"] == str(target.path)
        with pytest.raises(AlreadyAppliedError):
            apply(artifact, source, tmp_path / "out", revert=True)
        plain = extracted(tmp_path / "root", source, target)
        with pytest.raises(AlreadyAppliedError) as caught:
            apply(plain, target, tmp_path / "out")
        assert "revertible" not in caught.value.facts

    def test_a_target_that_differs_only_in_the_middle_is_recognized(self, tmp_path: Path) -> None:
        before = bf16((3 * LEAF,), 1)
        after = before[1].copy()
        after[LEAF + 5] ^= 1
        source, target = opened(tmp_path, {"w": before}, {"w": bits(after)})
        artifact = extracted(tmp_path / "root", source, target)
        with pytest.raises(AlreadyAppliedError):
            apply(artifact, target, tmp_path / "out")
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("shards", [1, 2])
def test_tensors_that_come_go_and_change_form(shards: int, tmp_path: Path) -> None:
    source = {
        "a": bf16((40, 4), 1),
        "gone": bf16((3,), 2),
        "padded": bf16((LEAF + 4, 2), 3),
        "cast": bf16((4,), 4),
        "router": f32((9,), 5),
        "ids": ("I64", np.arange(5, dtype=np.uint64)),
        "emptied": bf16((4,), 6),
    }
    target = {
        "a": moved(source["a"], 0.5),
        "padded": bf16((LEAF + 8, 2), 7),
        "cast": ("F16", bf16((4,), 8)[1]),
        "router": f32((9,), 9),
        "ids": ("I64", np.arange(5, dtype=np.uint64)[::-1].copy()),
        "emptied": bf16((0, 4), 6),
        "new": bf16((2, 2), 10),
    }
    checkpoints = opened(tmp_path, source, target, shards=shards)
    artifact = extracted(tmp_path / "root", *checkpoints, allow_mismatch=True, reversible=True)
    goes_and_comes_back(artifact, *checkpoints, tmp_path)


def test_an_fp32_target_comes_out_as_its_bf16_cast(tmp_path: Path) -> None:
    before = bf16((50, 50), 1)
    source = {"w": before, "special": bits([0x7F81, 0x0000, 0xFF80])}
    wide = ("F32", np.array([0x7F810001, 0x80000000, 0x7F7FFFFF], np.uint32))
    target = {"w": widened(moved(before, 0.3)), "special": wide}
    checkpoints = opened(tmp_path, source, target)
    artifact = extracted(tmp_path / "root", *checkpoints)
    done = apply(artifact, checkpoints[0], tmp_path / "out")
    assert len(done.notes) == 1 and "F32" in done.notes[0]
    for name, (dtype, _, data) in stored(tmp_path / "out").items():
        assert dtype == "BF16"
        assert data == to_bf16(target[name][1], "F32").tobytes()


def test_an_absolute_rule_gives_the_masked_changes_only(tmp_path: Path) -> None:
    before = bf16((100, 100), 1, 1e-3)
    after = moved(before, 0.5)
    checkpoints = opened(tmp_path, {"w": before}, {"w": after})
    artifact = extracted(tmp_path / "root", *checkpoints, rule="abs:1e-5", reversible=True)
    done = apply(artifact, checkpoints[0], tmp_path / "out")
    assert any("abs:1e-05" in note for note in done.notes)
    expected = np.where(artifact.mask["w"].to_bool(), after[1], before[1])
    assert stored(tmp_path / "out")["w"][2] == expected.tobytes()
    apply(artifact, open_checkpoint(tmp_path / "out"), tmp_path / "back", revert=True)
    assert stored(tmp_path / "back") == stored(tmp_path / "source")


def test_a_single_file_becomes_a_single_file(tmp_path: Path) -> None:
    source, target = make_pair(tmp_path)
    given_file = open_checkpoint(source / "model.safetensors")
    artifact = extracted(tmp_path / "root", given_file, open_checkpoint(target / "model.safetensors"))
    apply(artifact, given_file, tmp_path / "out.safetensors")
    assert (tmp_path / "out.safetensors").read_bytes() == (target / "model.safetensors").read_bytes()


def test_code_of_the_artifact_is_written_only_on_request(tmp_path: Path) -> None:
    source, target = make_pair(tmp_path)
    (source / "own.py").write_text("own = 1")
    (target / "own.py").write_text("own = 1")
    (source / "modeling_x.py").write_text("old = 1")
    (target / "modeling_x.py").write_text("new = 1")
    (target / "added.py").write_text("added = 1")
    (target / "chat_template.jinja").write_text("{{ messages }}")
    (source / "README.txt").write_text("kept")
    (target / "config.json").write_text('{"auto_map": {"AutoModel": "eve/code--added.X"}}')
    pair = open_checkpoint(source), open_checkpoint(target)
    artifact = extracted(tmp_path / "root", *pair, reversible=True, with_code=True)
    done = apply(artifact, open_checkpoint(source), tmp_path / "out")
    assert done.code_left_out == ("added.py", "config.json", "modeling_x.py")
    assert done.code_files == ("modeling_x.py", "own.py")
    assert (tmp_path / "out" / "modeling_x.py").read_text() == "old = 1"
    assert (tmp_path / "out" / "config.json").read_bytes() == (source / "config.json").read_bytes()
    assert not (tmp_path / "out" / "added.py").exists()
    assert (tmp_path / "out" / "chat_template.jinja").read_text() == "{{ messages }}"
    assert len(done.notes) == 2
    done = apply(artifact, open_checkpoint(source), tmp_path / "whole", with_code=True)
    assert (done.code_left_out, done.code_files) == ((), ("added.py", "config.json", "modeling_x.py", "own.py"))
    (target / "README.txt").write_text("kept")
    apply(artifact, open_checkpoint(tmp_path / "whole"), tmp_path / "back", revert=True, with_code=True)
    for made, expected in (("whole", target), ("back", source)):
        assert {p.name: p.read_bytes() for p in (tmp_path / made).iterdir()} == {
            p.name: p.read_bytes() for p in expected.iterdir()
        }


def test_other_weight_files_are_named_and_not_copied(tmp_path: Path) -> None:
    source, target = make_pair(tmp_path)
    artifact = extracted(tmp_path / "root", open_checkpoint(source), open_checkpoint(target))
    (source / "pytorch_model.bin").write_bytes(b"old")
    done = apply(artifact, open_checkpoint(source), tmp_path / "out")
    assert done.skipped_files == ("pytorch_model.bin",)
    assert done.notes == ()
    assert not (tmp_path / "out" / "pytorch_model.bin").exists()


def test_memory_is_used_again_for_every_block(tmp_path: Path) -> None:
    codes = np.random.default_rng(1).integers(0, 1 << 16, BLOCK).astype(np.uint16)
    tensors = {f"w{n}": bits(codes + np.uint16(n)) for n in range(6)}
    tensors["whole"] = f32((BLOCK,), 1)
    changed = {name: (dtype, values ^ values.dtype.type(1)) for name, (dtype, values) in tensors.items()}
    source, target = opened(tmp_path, {**tensors, "kept": bits(codes)}, {**changed, "kept": bits(codes)})
    artifact = extracted(tmp_path / "root", source, target)
    with NewMemory() as new:
        apply(artifact, source, tmp_path / "out", jobs=1, progress=new)
    assert len(new.of_steps) >= 8, new.of_steps
    # A block has 8 MiB. The first of each kind takes what the others use again.
    assert sum(step > 6 << 20 for step in new.of_steps) <= 3, new.of_steps
