"""What ``--role`` and ``--layers`` choose, in commands that need no torch."""

from __future__ import annotations

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
    assert f"q_proj: 512 coordinates, of which {percent(nnz / 512)} " in shown


def test_what_is_recorded_of_a_selection_says_which(run: Run, masks: tuple[str, str, str]) -> None:
    words = ("compare", *masks, "--role", "q_proj", "--layers", "0", "--record")
    recorded = run(*words, "--json").json["recorded"]
    assert {row["metric"] for row in recorded} == {"overlap", "rlvr_overlap", "seed_overlap"}
    assert {row["by_group"] for row in recorded} == {"q_proj in layer 0"}
    assert {row["detail"]["scope"]["coordinates"] for row in recorded} == {256}
    # They are no overlaps of the whole masks, even if recorded last.
    assert run("show", "one", "--json").json["rlvr_overlap"] is None
    whole = run("compare", *masks, "--record", "--json").json["recorded"]
    assert "q_proj" not in run("compare", *masks, "--record").err
    assert ", q_proj in layer 0" in run(*words).err
    shown = run("show", "one", "--json").json["rlvr_overlap"]
    assert shown["lift"] == next(row["value"] for row in whole if row["metric"] == "rlvr_overlap")
    listed = run("list", "one", "--json").json["names"][0]
    assert listed["rlvr_overlap"] == shown["lift"]
