"""What ``--role`` and ``--layers`` choose, in commands that need no torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from maskreg.words import percent
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
