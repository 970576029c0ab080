"""What ``diff`` says of two artifacts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import maskreg
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.cli.conftest import Run, tensors

REF = "toy-opd:v1"


def test_what_changed_is_listed(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    target = {name: moved(tensor, 0.3, 40 + n) for n, (name, tensor) in enumerate(tensors().items())}
    del target["lm_head.weight"]
    target["extra.weight"] = bf16((4, 4), 9)
    later = make_checkpoint(tmp_path / "later", target)
    options = ["--family", "toy", "--method", "rlvr", "--allow-mismatch"]
    digest = run("extract", pair[0], later, "--name", "toy-opd:v2", *options, "--json").json["digest"]
    document = run("diff", REF, "toy-opd:v2", "--json").json
    assert document["digests"] == [artifact, digest]
    assert (document["same_source"], document["same_target"], document["notes"]) == (True, False, [])
    fields = {row["name"]: (row["a"], row["b"]) for row in document["fields"]}
    assert fields["method"] == ("opd", "rlvr")
    assert "family" not in fields
    assert (document["added"], document["removed"]) == (["extra.weight"], [])
    assert [row["name"] for row in document["changed"]] == ["lm_head.weight"]
    first, second = (maskreg.load(ref).mask for ref in (REF, "toy-opd:v2"))
    names = sorted({*first} & {*second})
    left, right = (np.concatenate([mask[name].to_bool().ravel() for name in names]) for mask in (first, second))
    assert document["masks"] == {
        "only_a": int((left & ~right).sum()),
        "only_b": int((right & ~left).sum()),
        "both": int((left & right).sum()),
    }
    # A tensor that only one of them has can be selected.
    for word, added, removed, changed in (
        ("extra", ["extra.weight"], [], []),
        ("lm_head", [], [], ["lm_head.weight"]),
        ("q_proj", [], [], []),
    ):
        part = run("diff", REF, "toy-opd:v2", "--role", word, "--json").json
        assert (part["added"], part["removed"]) == (added, removed)
        assert [row["name"] for row in part["changed"]] == changed
        assert part["fields"] == document["fields"]
    roles = {row["name"]: (row["a"], row["b"]) for row in document["roles"]}
    assert roles["ffn"] == tuple(maskreg.show(ref).manifest.totals.roles["ffn"].density for ref in (REF, "toy-opd:v2"))
    told = run("diff", REF, "toy-opd:v2").out
    assert "added: 1 tensor" in told
    assert "size\n  A  {:,} bytes\n  B  {:,} bytes\n".format(*fields["size"]) in told
