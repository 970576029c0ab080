"""What ``--role`` and ``--layers`` choose, in commands that need no torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from maskreg.words import percent
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved
from tests.cli.conftest import Run


def test_groups_of_selected_tensors(run: Run, artifact: str) -> None:
    rows = run("show", artifact, "--by", "tensor", "--json").json["groups"]
    names = [f"model.layers.{layer}.self_attn.q_proj.weight" for layer in (0, 1)]
    chosen = run("show", artifact, "--by", "tensor", "--role", "q_proj", "--json").json
    assert chosen["groups"] == {name: rows[name] for name in names}
    assert chosen["selection"] == {"roles": ["q_proj"], "layers": ""}
    one = run("show", artifact, "--by", "tensor", "--role", "q_proj", "--layers", "1", "--json").json["groups"]
    assert one == {names[1]: rows[names[1]]}
    nnz = sum(rows[name]["nnz"] for name in names)
    shown = run("show", artifact, "--role", "q_proj").out
    assert f"--role q_proj selects 512 coordinates, of which {percent(nnz / 512)} moved" in shown


def test_what_is_compared_can_be_selected(run: Run, masks: tuple[str, str, str]) -> None:
    whole = run("compare", *masks[:2], "--json").json
    assert whole["selection"] == {"roles": [], "layers": ""}
    chosen = run("compare", *masks[:2], "--role", "q_proj", "--layers", "0", "--json").json
    name = "model.layers.0.self_attn.q_proj.weight"
    pair = chosen["pairs"][0]
    assert pair["tensors"] == {name: whole["pairs"][0]["tensors"][name]}
    assert pair["scope"] == {"tensors": 1, "coordinates": 256}
    assert pair["whole"] == pair["tensors"][name]


def test_what_is_recorded_of_a_selection_says_which(run: Run, masks: tuple[str, str, str]) -> None:
    words = ("compare", *masks, "--role", "q_proj", "--layers", "0", "--record")
    recorded = run(*words, "--json").json["recorded"]
    assert {row["metric"] for row in recorded} == {"overlap", "rlvr_overlap", "seed_overlap"}
    assert {row["by_group"] for row in recorded} == {"--role q_proj --layers 0"}
    assert {row["detail"]["scope"]["coordinates"] for row in recorded} == {256}
    # They are no overlaps of the whole masks, whatever was recorded last.
    assert run("show", "one", "--json").json["rlvr_overlap"] is None
    whole = run("compare", *masks, "--record", "--json").json["recorded"]
    assert "of --role q_proj" not in run("compare", *masks, "--record").err
    assert ", --role q_proj --layers 0" in run(*words).err
    shown = run("show", "one", "--json").json["rlvr_overlap"]
    assert shown["lift"] == next(row["value"] for row in whole if row["metric"] == "rlvr_overlap")
    listed = run("list", "one", "--json").json["names"][0]
    assert listed["rlvr_overlap"] == shown["lift"]


def test_the_parts_of_a_fused_matrix_compare_as_if_stored_alone(run: Run, tmp_path: Path) -> None:
    rows = {"q_proj": 32, "k_proj": 16, "v_proj": 16}
    at = "model.layers.0.self_attn.{}.weight"
    alone = {at.format(name): bf16((size, 64), size) for name, size in rows.items()}
    alone[at.format("v_proj")] = bf16((16, 64), 1)
    alone[at.format("o_proj")] = bf16((64, 32), 5)
    runs = [alone, *({name: moved(tensor, 0.4, seed) for name, tensor in alone.items()} for seed in (1, 2))]
    found = []
    for form in ("alone", "fused"):
        paths = [
            make_checkpoint(tmp_path / f"{form}-{n}", _fused(model, at) if form == "fused" else model)
            for n, model in enumerate(runs)
        ]
        names = [f"{form}-{number}" for number in (1, 2)]
        for name, path in zip(names, paths[1:], strict=True):
            run("extract", paths[0], path, "--name", name)
        options = ("--role", "qkvo", "--source", paths[0], "--updates", "--json")
        document = run("compare", *names, *options).json
        found.append((document["pairs"][0], document["updates"][0]))
        split = run("show", names[0], "--by", "tensor", "--role", "qkvo", "--json").json["groups"]
        assert set(split) == set(alone)
        found[-1][0]["split"] = split
    for key in ("whole", "tensors", "roles", "split"):
        assert found[0][0][key] == found[1][0][key]
    assert found[0][1]["tensors"] == found[1][1]["tensors"]


def _fused(model: dict[str, Tensor], at: str) -> dict[str, Tensor]:
    parts = [model[at.format(name)][1] for name in ("q_proj", "k_proj", "v_proj")]
    return {at.format("qkv_proj"): ("BF16", np.concatenate(parts)), at.format("o_proj"): model[at.format("o_proj")]}


def test_a_consensus_map_is_written_once(run: Run, masks: tuple[str, str, str], tmp_path: Path) -> None:
    path = tmp_path / "maps" / "q.npz"
    shown = run("compare", *masks, "--role", "q_proj", "--consensus-map", path).out
    assert "model.layers.0.self_attn.q_proj.weight" in shown
    assert "rows var/indep." in shown
    with np.load(path) as maps:
        assert set(maps.files) == {"masks", *(f"model.layers.{n}.self_attn.q_proj.weight" for n in (0, 1))}
    before = path.read_bytes()
    run("compare", *masks, "--role", "q_proj", "--consensus-map", path, status=73)
    assert path.read_bytes() == before
